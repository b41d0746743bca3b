"""The Grafana dashboard: its queries answered by a real Prometheus that scrapes a small fleet, and the pictures of the answers.

Owns: the fleet, the substitution of Grafana's variables, the pictures. Must not know: Grafana, which is not to be had here.
"""
