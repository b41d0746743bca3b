"""Models of exactly-once: every order of everything that drivers, tasks, coordinators and clocks may do, in small worlds.

The drivers are the steps of `spark_producer.exactly_once` themselves; brokers, tasks and Spark are small pure models here.
"""
