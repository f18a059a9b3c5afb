"""Which requests the page's server answers, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.trial.errors import InvalidConfig
from holdfast.web.security import (
    LARGEST_BODY,
    Access,
    Admitted,
    Asked,
    Redirected,
    Refused,
    allowed_name,
    base_of,
    is_loopback,
)

TOKEN = "a-token-of-this-test"
ACCESS = Access(port=8765, token=TOKEN)
HOST = "127.0.0.1:8765"


def cookie_of(access: Access) -> str:
    verdict = access.judge(
        Asked(method="GET", path=access.base, query=f"token={TOKEN}", hosts=[HOST])
    )
    assert isinstance(verdict, Redirected)
    return verdict.cookie.partition(";")[0]


COOKIE = cookie_of(ACCESS)
GET = Asked(method="GET", path="/api/about", cookies=[COOKIE], hosts=[HOST])
POST = replace(GET, method="POST", origins=[f"http://{HOST}"], content_types=["application/json"])


def refused(asked: Asked, access: Access = ACCESS) -> tuple[int, str]:
    verdict = access.judge(asked)
    assert isinstance(verdict, Refused), verdict
    return verdict.status, verdict.why


@pytest.mark.parametrize("asked", [GET, POST, replace(GET, method="HEAD")])
def test_a_request_with_the_cookie_is_admitted(asked: Asked) -> None:
    assert ACCESS.judge(asked) == Admitted(path="/api/about", is_framed=False)


@pytest.mark.parametrize(
    "cookies",
    [
        [],
        ["other=1"],
        [COOKIE[:-1]],
        [f"{COOKIE}0"],
        [COOKIE.partition("=")[0] + "="],
        ["=" + COOKIE.partition("=")[2]],
        [f"holdfast-8766-00000000={COOKIE.partition('=')[2]}"],
        [f"{COOKIE.partition('=')[0]}={TOKEN}"],
        [COOKIE.upper()],
        ["\udcff=\xff"],
    ],
)
def test_nothing_is_answered_without_the_cookie(cookies: list[str]) -> None:
    for path in ("/", "/api/about", "/static/js/main.js", "/nothing", "//", "/frame", "/framed/x"):
        status, why = refused(replace(GET, cookies=cookies, path=path))
        assert status == 403
        assert "Open the URL with the token" in why


def test_the_cookie_may_be_one_of_several() -> None:
    several = [f"a=1; {COOKIE}; b=2", f"{COOKIE.partition('=')[0]}=old"]
    assert isinstance(ACCESS.judge(replace(GET, cookies=several[:1])), Admitted)
    assert isinstance(ACCESS.judge(replace(GET, cookies=several[::-1])), Admitted)


def test_the_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_cannot_use() -> None:
    asked = replace(GET, cookies=[], path="/", query=f"x=1&token={TOKEN}")
    verdict = ACCESS.judge(asked)
    assert isinstance(verdict, Redirected)
    assert verdict.location == "./"
    _, *attributes = verdict.cookie.split("; ")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert TOKEN not in verdict.cookie


@pytest.mark.parametrize("query", ["token=", "token=x", f"token={TOKEN}x", "token=%ff%00"])
def test_a_wrong_token_is_refused_even_with_the_cookie(query: str) -> None:
    assert refused(replace(GET, path="/", query=query))[0] == 403


def test_the_token_counts_only_where_the_page_is() -> None:
    asked = replace(GET, cookies=[], query=f"token={TOKEN}")
    assert refused(asked)[0] == 403
    assert refused(replace(POST, path="/", cookies=[], query=f"token={TOKEN}"))[0] == 403


def test_a_frame_needs_no_cookie_but_the_token_in_its_path() -> None:
    framed = replace(GET, cookies=[], path=f"/frame/{TOKEN}/api/about")
    assert ACCESS.judge(framed) == Admitted(path="/api/about", is_framed=True)
    bare = replace(framed, path=f"/frame/{TOKEN}")
    assert ACCESS.judge(bare) == Redirected(location=f"{TOKEN}/")
    for path in ("/frame//api/about", "/frame/x/api/about", f"/frame/{TOKEN}x/", "/frame/"):
        assert refused(replace(framed, path=path, cookies=[COOKIE]))[0] == 403


def test_a_frame_may_come_through_a_proxy_of_any_name() -> None:
    framed = replace(POST, cookies=[], path=f"/frame/{TOKEN}/x", hosts=["hub.example.org"])
    assert refused(framed)[0] == 403
    own = replace(framed, origins=["https://hub.example.org"])
    assert isinstance(ACCESS.judge(own), Admitted)
    assert refused(replace(own, path="/frame/x/x"))[0] == 403


def test_a_frame_takes_no_order_of_another_page() -> None:
    framed = replace(POST, cookies=[], path=f"/frame/{TOKEN}/api/e/x/orders")
    assert isinstance(ACCESS.judge(framed), Admitted)
    assert refused(replace(framed, origins=["http://localhost:8888"]))[0] == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:9000", "LOCALHOST", "[::1]:8765", "127.0.0.1:80"]
)
def test_loopback_may_have_any_port_as_through_a_tunnel(host: str) -> None:
    assert isinstance(ACCESS.judge(replace(GET, hosts=[host])), Admitted)


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([], 400),
        ([""], 400),
        ([HOST, HOST], 400),
        (["127.0.0.1:8765:1"], 400),
        (["127.0.0.1/x"], 400),
        (["user@127.0.0.1"], 400),
        (["evil.example"], 403),
        (["127.0.0.1.evil.example:8765"], 403),
        (["localhost.evil.example"], 403),
        (["192.168.1.5:8765"], 403),
        (["0.0.0.0:8765"], 403),
    ],
)
def test_a_name_that_somebody_else_may_own_is_refused(hosts: list[str], status: int) -> None:
    assert refused(replace(GET, hosts=hosts))[0] == status


def test_the_refusal_of_a_host_says_how_to_allow_it() -> None:
    _, why = refused(replace(GET, hosts=["hub.example.org:443"]))
    assert why.endswith("holdfast web --allow-host hub.example.org")
    hub = Access(port=8765, token=TOKEN, names=["hub.example.org"])
    assert isinstance(hub.judge(replace(GET, hosts=["hub.example.org"])), Admitted)


def test_the_address_that_a_connection_came_to_is_a_name_of_the_server() -> None:
    asked = replace(GET, hosts=["192.168.1.5:8765"], local="192.168.1.5")
    assert isinstance(ACCESS.judge(asked), Admitted)


@pytest.mark.parametrize("asked", [GET, POST])
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:8766",
        "http://localhost:8765",
        "https://127.0.0.1",
        "null",
        "",
        "file://",
        f"ftp://{HOST}",
        f"http://{HOST}.evil.example",
        f"http://{HOST}@evil.example",
    ],
)
def test_a_page_of_another_origin_is_refused(asked: Asked, origin: str) -> None:
    assert refused(replace(asked, origins=[origin]))[0] == 403
    assert refused(replace(asked, origins=[f"http://{HOST}", origin]))[0] == 403


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://hub.example.org", "hub.example.org"),
        ("https://hub.example.org", "hub.example.org:443"),
        ("http://localhost", "localhost:80"),
        ("http://LOCALHOST:9000", "localhost:9000"),
    ],
)
def test_an_origin_is_compared_with_the_host_that_the_browser_sees(origin: str, host: str) -> None:
    hub = Access(port=8765, token=TOKEN, names=["hub.example.org"])
    assert isinstance(hub.judge(replace(POST, origins=[origin], hosts=[host])), Admitted)


def test_a_post_needs_an_origin() -> None:
    assert refused(replace(POST, origins=[])) == (403, "a POST needs the header Origin")


@pytest.mark.parametrize("kind", [[], ["text/plain"], ["application/x-www-form-urlencoded"]])
def test_a_post_needs_json_which_no_form_of_another_page_can_send(kind: list[str]) -> None:
    assert refused(replace(POST, content_types=kind))[0] == 415
    twice = ["application/json", *kind]
    assert not kind or refused(replace(POST, content_types=twice))[0] == 415


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_the_page_and_embed_nothing(site: str) -> None:
    assert refused(replace(GET, fetch_site=site, fetch_mode="no-cors"))[0] == 403
    link = replace(GET, path="/", fetch_site=site, fetch_mode="navigate")
    assert isinstance(ACCESS.judge(link), Admitted)


def test_a_link_from_another_site_loads_again_because_its_browser_withholds_the_cookie() -> None:
    link = replace(GET, path="/", cookies=[], fetch_site="cross-site", fetch_mode="navigate")
    verdict = ACCESS.judge(link)
    assert isinstance(verdict, Refused)
    assert (verdict.status, verdict.again) == (403, True)
    for other in (replace(link, fetch_site="same-origin"), replace(link, path="/api/about")):
        found = ACCESS.judge(other)
        assert isinstance(found, Refused)
        assert not found.again


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT", "get", "X"])
def test_other_methods_are_refused(method: str) -> None:
    assert refused(replace(GET, method=method))[0] == 405


@pytest.mark.parametrize("length", [str(LARGEST_BODY + 1), "9" * 40, "-1", "x", ""])
def test_a_large_body_is_refused_before_it_is_read(length: str) -> None:
    assert refused(replace(POST, lengths=[length]))[0] == 413
    assert isinstance(ACCESS.judge(replace(POST, lengths=[str(LARGEST_BODY)])), Admitted)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (replace(POST, lengths=["2"], encodings=["chunked"]), 400),
        (replace(POST, encodings=["chunked"], version="1.0"), 400),
        (replace(GET, encodings=["chunked"]), 400),
        (replace(GET, lengths=["5"]), 400),
        (replace(GET, method="OPTIONS", lengths=["5"]), 400),
        (replace(GET, version="2.0"), 505),
        (replace(GET, head_bytes=100_000), 431),
        (replace(GET, version="0.9"), 505),
    ],
)
def test_a_request_whose_end_is_not_certain_is_refused(asked: Asked, status: int) -> None:
    assert refused(asked)[0] == status


@pytest.mark.parametrize(
    "asked",
    [
        replace(GET, lengths=["0"]),
        replace(GET, version="1.0"),
        replace(POST, encodings=["chunked"]),
    ],
)
def test_a_request_whose_end_is_certain_is_admitted(asked: Asked) -> None:
    assert isinstance(ACCESS.judge(asked), Admitted)


@pytest.mark.parametrize("target", ["http://127.0.0.1:8765/", "*", "x/../api/about", ""])
def test_a_target_must_be_a_path(target: str) -> None:
    assert refused(replace(GET, path=target), Access(port=8765, token=TOKEN, base="/p/"))[0] == 400


def test_a_proxy_may_keep_the_prefix_or_strip_it() -> None:
    access = Access(port=8765, token=TOKEN, base="/user/ann/proxy/8765/")
    cookie = cookie_of(access)
    kept = replace(GET, cookies=[cookie], path="/user/ann/proxy/8765/api/about")
    for asked in (kept, replace(kept, path="/api/about")):
        assert access.judge(asked) == Admitted(path="/api/about", is_framed=False)
    first = access.judge(replace(kept, path="/user/ann/proxy/8765/", query=f"token={TOKEN}"))
    assert isinstance(first, Redirected)
    assert "Path=/user/ann/proxy/8765/;" in first.cookie
    bare = access.judge(replace(kept, path="/user/ann/proxy/8765"))
    assert bare == Redirected(location="8765/")
    beside = replace(kept, path="/user/ann/proxy/87650/api/about")
    assert access.judge(beside) == Admitted(path=beside.path, is_framed=False)  # unknown: 404


def test_two_servers_of_one_host_have_two_cookies() -> None:
    assert cookie_of(Access(port=8765, token=TOKEN)) == COOKIE
    other = Access(port=8765)
    assert other.token != Access(port=8765).token
    assert len(other.token) >= 43
    assert refused(GET, other)[0] == 403


@pytest.mark.parametrize(
    ("given", "base"),
    [("/", "/"), ("", "/"), ("/proxy/8765", "/proxy/8765/"), ("/a//b/", "/a/b/")],
)
def test_a_base_url_is_a_path(given: str, base: str) -> None:
    assert base_of(given) == base


@pytest.mark.parametrize("given", ["proxy", "http://x/y", "/a;b", "/a b", "/../x", "/\n", "/ä"])
def test_other_base_urls_are_refused(given: str) -> None:
    with pytest.raises(InvalidConfig, match="--base-url"):
        base_of(given)


def test_an_allowed_host_is_a_name_or_an_address() -> None:
    assert allowed_name("Hub.Example.org") == "hub.example.org"
    assert allowed_name("[::2]") == "::2"
    for given in ("a:80", "http://a", "", "a b", "*"):
        with pytest.raises(InvalidConfig, match="--allow-host"):
            allowed_name(given)


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("vm", False)],
)
def test_a_server_beyond_loopback_is_known(host: str, only_here: bool) -> None:
    assert is_loopback(host) is only_here
