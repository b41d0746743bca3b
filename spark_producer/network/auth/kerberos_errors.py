"""The errors of Kerberos as one sentence on what failed and one on what to do, by the number of RFC 4120 or of MIT's library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spark_producer.common.escape import for_log
from spark_producer.errors import AuthenticationFailed
from spark_producer.security.settings import KerberosSettings

_TABLE_BASE: Final = 2**32 - 1765328384
"""The first number of krb5's table of errors (MIT's krb5_err.et), as the library gives it, without a sign."""

_EXPIRED: Final = 32
_NO_CACHE: Final = (141, 195)
_OTHER_OWNER: Final = 39756032
"""KG_CCACHE_NOMATCH of MIT's table of GSS-API (gssapi_err_krb5.et)."""
_CREDENTIALS_EXPIRED: Final = 11 << 16
"""GSS_S_CREDENTIALS_EXPIRED (RFC 2744)."""


class _Meaning(NamedTuple):
    """What an error means. `{identity}`, `{service}` and `{keys}` are replaced."""

    failure: str
    advice: str
    fatal: bool = True


_KDC: Final = "Look whether the KDCs of krb5.conf run, and are reachable from this machine"
_CONF: Final = "Check /etc/krb5.conf (or KRB5_CONFIG) on this machine"
_KINIT: Final = "Run kinit on this machine as the user of this process, or give a keytab"
_KEYTAB: Final = (
    "Make the keytab again: its key is not that of the KDC, where a new one was made or the password changed"
)

_MEANINGS: Final[Mapping[int, _Meaning]] = {
    6: _Meaning("the KDC does not know {identity}", "Check the principal and its realm"),
    7: _Meaning(
        "the KDC does not know the broker {service}",
        "Set kafka.sasl.kerberos.service.name to the first part of the brokers' principals, and connect by the hosts in them "
        "(bootstrap.servers, advertised.listeners)",
    ),
    14: _Meaning("the KDC has no encryption type in common with {keys}", "Make the keytab again, with keys for AES"),
    18: _Meaning("the KDC has locked {identity}, or it has expired", "Ask the administrator of the KDC"),
    23: _Meaning("the password of {identity} has expired", "Change it, and make the keytab again"),
    24: _Meaning("the KDC refuses {keys}", _KEYTAB),
    31: _Meaning("{keys} does not fit the answer of the KDC", _KEYTAB),
    32: _Meaning("the ticket in the ticket cache has expired", _KINIT),
    37: _Meaning(
        "the clocks of this machine and of the KDC differ too much", "Correct them; five minutes are the usual maximum"
    ),
    141: _Meaning("this process has no ticket cache", _KINIT),
    154: _Meaning("krb5.conf names no KDC for the realm of {identity}", _CONF),
    224: _Meaning("krb5.conf names no default realm, or cannot be read", _CONF),
    156: _Meaning("no KDC answers for the realm of {identity}", _KDC, fatal=False),
}
"""By RFC 4120, 7.5.9, up to 127; then by MIT's krb5_err.et."""


def explained(error: Any, settings: KerberosSettings, host: str = "") -> AuthenticationFailed:
    """Return the error to raise for one of the library, which has the numbers of GSS-API and of Kerberos.

    `host` is that of the broker for which a ticket was asked for; empty if it was for the client itself. An error that is not in
    the table is shown in the library's words, and is not fatal.
    """
    number = error.min_code - _TABLE_BASE
    if error.maj_code == _CREDENTIALS_EXPIRED:
        number = _EXPIRED
    meaning = _MEANINGS.get(_NO_CACHE[0] if number in _NO_CACHE else number)
    identity = for_log(settings.principal) if settings.principal else "the owner of the ticket cache"
    if number in _NO_CACHE and settings.keytab:
        meaning = _Meaning("{keys} has no key of {identity}, or is not a keytab", "klist -k shows what is in it")
    elif error.min_code == _OTHER_OWNER:
        meaning = _Meaning("the ticket cache is not that of {identity}", "Name its own principal, or none")
    elif meaning is None:
        said = for_log(error.get_all_statuses(error.min_code, False)[0])
        meaning = _Meaning(f"Kerberos says {said!r}".replace("{", "{{").replace("}", "}}"), _CONF, fatal=False)
    values = {
        "identity": identity,
        "service": for_log(f"{settings.service}/{host}"),
        "keys": f"the keytab {for_log(settings.keytab)}" if settings.keytab else "the password",
    }
    sentence = meaning.failure.format_map(values)
    return AuthenticationFailed(f"no Kerberos ticket: {sentence}. {meaning.advice}", fatal=meaning.fatal)
