"""The grammar of `sasl.jaas.config`: what it accept, and what it says of everything else. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import random
import re
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.config import jaas
from spark_producer.config.jaas import KEYS, JaasEntry, parse_jaas
from spark_producer.errors import ConfigError
from tests.support.campaigns import sample_and_campaign

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
CLASSES = {
    "PlainLoginModule": PLAIN, "ScramLoginModule": SCRAM, "OAuthBearerLoginModule": OAUTH, "IAMLoginModule": IAM,
    "Krb5LoginModule": KRB5,
}  # fmt: skip
CANARY = "Kanarienvogel77"


def read(text: str, *, references: bool = True) -> tuple[str, dict[str, str]]:
    entry = parse_jaas(Secret(text), references=references)
    return entry.module, {key: value.reveal() for key, value in entry.options.items()}


def refusal(text: str, *, references: bool = True) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_jaas(Secret(text), references=references)
    message = str(refused.value)
    assert message.startswith("kafka.sasl.jaas.config cannot be parsed at character ")
    return message.removeprefix("kafka.sasl.jaas.config cannot be parsed at character ")


@pytest.mark.covers("SEC10")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{PLAIN} required username="u" password="p";', ("PlainLoginModule", {"username": "u", "password": "p"})),
        (f"{PLAIN} required username=u password=p-1_2.3;", ("PlainLoginModule", {"username": "u", "password": "p-1_2.3"})),
        (f"{PLAIN} required username='u' password='p\"q';", ("PlainLoginModule", {"username": "u", "password": 'p"q'})),
        (f'{PLAIN} required username = "u"\tpassword= "p" ;', ("PlainLoginModule", {"username": "u", "password": "p"})),
        (f'\n{PLAIN}\n  REQUIRED\n  username="u"\n  password="p";\n', ("PlainLoginModule", {"username": "u", "password": "p"})),
        (f'{SCRAM} sufficient tokenauth="true" ;', ("ScramLoginModule", {"tokenauth": "true"})),
        (f'{PLAIN} requisite password="a\\"b\\\\c\\\'d";', ("PlainLoginModule", {"password": "a\"b\\c'd"})),
        (f'{PLAIN} optional password="; // x = /* ä€ */ $";', ("PlainLoginModule", {"password": "; // x = /* ä€ */ $"})),
        (f'{PLAIN} required username="$ConnectionString";', ("PlainLoginModule", {"username": "$ConnectionString"})),
        (f"{PLAIN} required username=$ConnectionString;", ("PlainLoginModule", {"username": "$ConnectionString"})),
        (f'{PLAIN} required password="${{env:A_B}}";', ("PlainLoginModule", {"password": "${env:A_B}"})),
        (f'{PLAIN} required password="${{file:/m/f:a b}}";', ("PlainLoginModule", {"password": "${file:/m/f:a b}"})),
        (f'{PLAIN} required password="";', ("PlainLoginModule", {"password": ""})),
        (f"{IAM} required;", ("IAMLoginModule", {})),
        (f'{IAM} required awsRoleArn="arn:aws:iam::1:role/x";', ("IAMLoginModule", {"awsRoleArn": "arn:aws:iam::1:role/x"})),
        (f'{OAUTH} required clientId="c" extension_poolId="p";',
         ("OAuthBearerLoginModule", {"clientId": "c", "extension_poolId": "p"})),
    ],
)  # fmt: skip
def test_a_text_of_the_grammar_is_taken(text: str, expected: tuple[str, dict[str, str]]) -> None:
    assert read(text) == expected


@pytest.mark.covers("SEC10")
@pytest.mark.parametrize(
    "name",
    [
        f"kafkashaded.{SCRAM}",
        f"org.apache.kafka.shaded.{SCRAM}",
        "org.apache.kafka.shaded.common.security.scram.ScramLoginModule",
    ],
)
def test_classes_that_a_platform_has_renamed_are_known(name: str) -> None:
    assert read(f'{name} required username="u";') == ("ScramLoginModule", {"username": "u"})
    assert read(f"shadedmskiam.{IAM} required;") == ("IAMLoginModule", {})


KNOWN = "PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, IAMLoginModule, Krb5LoginModule"


@pytest.mark.covers("SEC10")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"1: the class of a login module is missing; the login modules are {KNOWN}"),
        (CANARY, f"1: the class is unknown, and Java classes cannot run here; the login modules are {KNOWN}"),
        (f"  com.sun.security.auth.module.JndiLoginModule required user.provider.url={CANARY};", "3: the class is unknown"),
        (f"com.sun.security.auth.module.Krb5LoginModule required password={CANARY};",
         "55: Krb5LoginModule has no such option; it accepts useKeyTab, keyTab, principal, useTicketCache, ticketCache, "
         "serviceName"),
        (f"com.ibm.security.auth.module.Krb5LoginModule required useKeytab={CANARY};", "1: the class is unknown"),
        (f"KafkaShaded.{PLAIN} required;", "1: the class is unknown"),
        (f"kafkashaded.kafkashaded.{PLAIN} required;", "1: the class is unknown"),
        ("PlainLoginModule required;", "1: the class is unknown"),
        (PLAIN, "56: the flag is missing; it is one of required, requisite, sufficient, optional"),
        (f"{PLAIN} {CANARY};", "57: the flag is unknown"),
        (f"{PLAIN} required", "65: the semicolon at the end is missing"),
        (f'{PLAIN} required username="{CANARY}" ', "93: the semicolon at the end is missing"),
        (f"{PLAIN} required ,", "66: key=value or the final semicolon is missing"),
        (f"{PLAIN} required {CANARY}=x;", "66: PlainLoginModule has no such option; it accepts username, password"),
        (f"{PLAIN} required Username=x;", "66: PlainLoginModule has no such option"),
        (f"{PLAIN} required user_app={CANARY};", "66: PlainLoginModule has no such option"),
        (f"{PLAIN} required password=Kanarien vogel77;", "84: PlainLoginModule has no such option"),
        (f"{OAUTH} required unsecuredLoginStringClaim_sub={CANARY};",
         "78: OAuthBearerLoginModule has no such option; it accepts clientId, clientSecret, scope, awsProfileName, awsRoleArn, "
         "awsRoleSessionName and extension_NAME"),
        (f"{OAUTH} required extension_=x;", "78: OAuthBearerLoginModule has no such option"),
        (f"{OAUTH} required extension_a1=x;", "78: OAuthBearerLoginModule has no such option"),
        (f"{PLAIN} required password=a password={CANARY};", "77: password is given twice"),
        (f"{PLAIN} required password;", "74: password has no value"),
        (f"{PLAIN} required password=;", "75: the value of password is missing, or needs quotes"),
        (f"{PLAIN} required password={CANARY}#!;", "90: key=value or the final semicolon"),
        (f"{PLAIN} required password=#{CANARY};", "75: the value of password is missing, or needs quotes"),
        (f"{PLAIN} required password=ä{CANARY};", "75: the value of password is missing, or needs quotes"),
        (f'{PLAIN} required password="{CANARY};', "75: the quotes of the value of password are not closed"),
        (f'{PLAIN} required password="{CANARY}\n";', "75: the quotes of the value of password are not closed"),
        (f"{PLAIN} required password=\"{CANARY}';", "75: the quotes of the value of password are not closed"),
        (f'{PLAIN} required password="{CANARY}\\n";', "91: the value of password has a single backslash"),
        (f'{PLAIN} required password="{CANARY}\\', "91: the value of password has a single backslash"),
        (f'{OAUTH} required extension_{CANARY[:13]}="a;', "102: the quotes of the value of extension_… are not closed"),
        (f'{PLAIN} required; {CANARY}', "67: text follows the semicolon"),
        (f'{PLAIN} required password="a"; {SCRAM} required password="{CANARY}";', "80: text follows the semicolon"),
        (f"{PLAIN} required; // {CANARY}", "67: text follows the semicolon"),
        (f"/* {CANARY} */ {PLAIN} required;", "1: the class of a login module is missing"),
        (f"KafkaClient {{ {PLAIN} required; }};", "1: the class is unknown"),
        (f'{PLAIN} required password="${{env:{CANARY}";', "75: the value of password has a reference, which must be"),
        (f'{PLAIN} required password="x${{env:{CANARY}}}";', "75: the value of password has a reference, which must be"),
        (f'{PLAIN} required password="${{vault:{CANARY}}}";', "75: the value of password has a reference, which must be"),
        (f'{PLAIN} required password="${{env:${{env:{CANARY}}}}}";', "75: the value of password has a reference, which must be"),
        (f'{PLAIN} required password="${{file:{CANARY}}}";', "75: the value of password has a reference, which must be"),
        (f'{OAUTH} required scope="${{env:{CANARY}}}";', "84: the value of scope has a reference, which is allowed for "
         "username, password, clientId, clientSecret only"),
        (f'{OAUTH} required extension_a="${{env:{CANARY}}}";', "90: the value of extension_… has a reference, which is allowed"),
        (f"{PLAIN} required password=${{env:{CANARY}}};", "76: key=value or the final semicolon"),
        (f"{PLAIN} required" + " " * 65_536, "65537: a text has at most 65536 characters"),
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_its_place_and_without_its_text(text: str, said: str) -> None:
    message = refusal(text)
    assert message.startswith(said)
    assert "anari" not in message


@pytest.mark.covers("SEC10")
def test_a_text_that_a_reference_gave_has_no_references() -> None:
    text = f'{PLAIN} required password="${{env:A}}";'
    assert read(text)[1] == {"password": "${env:A}"}
    assert "which cannot be resolved in a text that came from a reference itself" in refusal(text, references=False)
    assert read(f'{PLAIN} required password="a";', references=False)[1] == {"password": "a"}


@pytest.mark.covers("SEC10")
def test_no_frame_of_a_refusal_shows_the_text() -> None:
    """Some tools print the local variables of a traceback."""
    for text in (f'{PLAIN} required password="{CANARY}', f"{PLAIN} required password={CANARY} {CANARY}=", CANARY):
        with pytest.raises(ConfigError) as refused:
            parse_jaas(Secret(text))
        frames = [frame for frame, _ in traceback.walk_tb(refused.tb) if frame.f_code.co_filename == jaas.__file__]
        assert [frame.f_code.co_name for frame in frames] == ["parse_jaas"]
        assert CANARY not in "".join(repr(frame.f_locals) for frame in frames)
        assert refused.value.__context__ is None


def quoted(value: str, quote: str) -> str:
    return quote + re.sub(r"([\"'\\])", r"\\\1", value) + quote


BLANK = st.text(" \t\r\n", max_size=3)
VALUE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=40).filter(
    lambda value: "${" not in value
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str, dict[str, str]]:
    """A text of the grammar, and what it says."""
    module = draw(st.sampled_from(sorted(KEYS)))
    shading = draw(st.sampled_from(["", "kafkashaded.", "org.apache.kafka.shaded."]))
    keys = draw(st.lists(st.sampled_from(KEYS[module]), unique=True))
    options = {key: draw(VALUE) for key in keys}
    flag = draw(st.sampled_from(["required", "requisite", "sufficient", "optional", "Required"]))
    parts = [draw(BLANK), shading, CLASSES[module], draw(BLANK), " ", flag]
    for key, value in options.items():
        parts += [draw(BLANK), "\n", key, draw(BLANK), "=", draw(BLANK), quoted(value, draw(st.sampled_from("'\"")))]
    return "".join([*parts, draw(BLANK), ";", draw(BLANK)]), module, options


@pytest.mark.covers("SEC10")
@given(texts())
def test_what_is_written_by_the_grammar_is_read_again(written: tuple[str, str, dict[str, str]]) -> None:
    text, module, options = written
    assert read(text) == (module, options)


@pytest.mark.covers("SEC10")
@given(texts(), st.data())
def test_a_text_that_is_cut_off_is_refused(written: tuple[str, str, dict[str, str]], data: st.DataObject) -> None:
    text = written[0].rstrip()
    assert refusal(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.covers("SEC10")
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_with_our_error(text: str) -> None:
    tried(text)


def tried(text: str) -> bool:
    """Return whether a text is taken; what is refused is refused with our error, whose words do not depend on the text's."""
    try:
        outcome: JaasEntry | str = parse_jaas(Secret(text))
    except ConfigError as refused:
        outcome = str(refused)
    if isinstance(outcome, str):
        assert len(outcome) < 300
        assert CANARY not in outcome
        return False
    extensions = {key for key in outcome.options if key.startswith("extension_")}
    assert set(outcome.options) <= {*KEYS[outcome.module], *extensions}
    return True


GOOD = [
    f'{PLAIN} required username="u" password="{CANARY}";',
    f"kafkashaded.{SCRAM} required username='u' password={CANARY} tokenauth=true;",
    f'{OAUTH} required clientId="c" clientSecret="${{file:/m/{CANARY}:k}}" scope="a b" extension_x="{CANARY}";',
    f'{IAM} required awsProfileName="{CANARY}";',
]
PIECES = [
    '"',
    "'",
    "\\",
    ";",
    "=",
    " ",
    "\n",
    "${env:",
    "}",
    "required",
    "password",
    "username=",
    "//",
    "/*",
    "\0",
    "ä",
    "\U0001f511",
]


@pytest.mark.covers("SEC10")
@pytest.mark.parametrize("inputs", sample_and_campaign([5000, 1_000_000]))
def test_mutations_of_good_texts_are_read_or_refused(inputs: int) -> None:
    seeded = random.Random(inputs)
    taken = sum(tried(mutated(seeded.choice(GOOD), seeded)) for _ in range(inputs))
    assert 0 < taken < inputs, "some mutations only change a value"


def mutated(text: str, seeded: random.Random) -> str:
    """`text` with one to four pieces put in, cut out, doubled, or swapped."""
    for _ in range(seeded.randint(1, 4)):
        at, end = sorted(seeded.choices(range(len(text) + 1), k=2))
        kind = seeded.randrange(4)
        if kind == 0:
            text = text[:at] + seeded.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + seeded.randint(1, 8) :]
        elif kind == 2:
            text = text[:end] + text[at:end][:20] + text[end:]
        else:
            text = text[end:] + text[:end]
    return text
