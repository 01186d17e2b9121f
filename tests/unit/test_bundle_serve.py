"""The bundle's server gives out what the manifest names, and nothing else."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.bundle.build import build
from rackpin.bundle.model import MANIFEST, BundleError
from rackpin.bundle.serve import BundleServer
from rackpin.stack.pins import StackError
from tests.fixtures_debs import shared_key
from tests.unit.bundle_samples import APT, FILE, PACKAGES, Site

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("dpkg-scanpackages")), reason="needs gpg, dpkg-dev"
)


@pytest.fixture
def served(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, int]]:
    """A signed bundle and the port it is served at."""
    monkeypatch.setenv("GNUPGHOME", str(shared_key().home))
    out = tmp_path / "bundle"
    build(site.stack, site.contents, out, sign_key=shared_key().fingerprint, **site.options())
    with BundleServer(out, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield out, server.server_address[1]
        server.shutdown()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_every_file_is_given_whole(served: tuple[Path, int], site: Site) -> None:
    out, port = served
    for item in site.contents.items:
        assert ask(port, f"/{item.path.replace('+', '%2B')}") == (
            200, (out / item.path).read_bytes(),
        )  # fmt: skip
        assert ask(port, f"/{item.path}", "HEAD") == (200, b"")
    assert ask(port, f"/{MANIFEST}")[1] == (out / MANIFEST).read_bytes()


@pytest.mark.parametrize("path", ["/", "/wheelhouse", "/wheelhouse/", f"/{APT.path}/pool/"])
def test_directories_list_what_is_below_them(served: tuple[Path, int], path: str) -> None:
    status, body = ask(served[1], path)
    assert status == 200
    for link in body.decode().split('href="')[1:]:
        assert ask(served[1], link.partition('"')[0])[0] == 200
    assert (b"alpha-1.0" in body) is ("wheelhouse" in path)


def test_nothing_else_is_given_out(served: tuple[Path, int], tmp_path: Path) -> None:
    out, port = served
    (tmp_path / "secret").write_text("secret")
    (out / ".parts").mkdir()
    (out / ".parts/half").write_text("half")
    (out / "files/stranger").write_text("stranger")
    (out / FILE).unlink()
    (out / FILE).symlink_to(tmp_path / "secret")
    for path in (
        "/../secret", "/%2e%2e/secret", "/files/../../secret", "/.parts/half", "/.parts/",
        "/files/stranger", f"/{FILE}", "/.lock", "//etc/passwd", "/files%00", "/nothing", "/%",
    ):  # fmt: skip
        status, body = ask(port, path)
        assert status == 404 and b"secret" not in body.replace(path.encode(), b""), path
    for method in ("POST", "PUT", "DELETE"):
        assert ask(port, f"/{FILE}", method)[0] == 501


def test_a_directory_replaced_by_a_link_leads_nowhere(
    served: tuple[Path, int], tmp_path: Path
) -> None:
    out, port = served
    shutil.copytree(out / "files", tmp_path / "elsewhere")
    shutil.rmtree(out / "files")
    (out / "files").symlink_to(tmp_path / "elsewhere")
    assert ask(port, f"/{FILE}")[0] == 404


def test_while_it_is_made_anew_nothing_is_given_out(served: tuple[Path, int], site: Site) -> None:
    out, port = served
    (out / MANIFEST).unlink()
    assert ask(port, f"/{FILE}")[0] == 503
    build(site.stack, site.contents, out, sign_key=shared_key().fingerprint, **site.options())
    assert ask(port, f"/{FILE}")[0] == 200


def test_an_unfinished_bundle_or_a_taken_port_is_refused(
    served: tuple[Path, int], tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="no bundle, or one that isn't finished"):
        BundleServer(tmp_path, "127.0.0.1", 0)
    with pytest.raises(StackError, match="a free port"):
        BundleServer(served[0], "127.0.0.1", served[1])


@pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt")
@pytest.mark.parametrize("how", ["signed", "trusted", "neither", "other key"])
def test_apt_takes_it_by_key_or_because_it_was_told_to(
    served: tuple[Path, int], tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, port = served
    for variable in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    root = tmp_path / "apt"
    for name in ("lists/partial", "archives/partial", "etc/preferences.d", "etc/apt.conf.d",
                 "etc/sources.list.d", "etc/trusted.gpg.d", "log"):  # fmt: skip
        (root / name).mkdir(parents=True)
    (root / "status").write_text("")
    key = out / "keys/site.asc"
    if how == "other key":
        from tests.fixtures_debs import new_key

        key = new_key("other").export(tmp_path / "other.asc")
    option = {"trusted": "[trusted=yes]", "neither": ""}.get(how, f"[signed-by={key}]")
    line = f"deb {option} http://127.0.0.1:{port}/{APT.path} /\n"
    (root / "etc/sources.list").write_text(line)
    if how in ("trusted", "neither"):
        (out / APT.path / "InRelease").unlink()  # as in an unsigned bundle
    (root / "conf").write_text(
        f'Dir "{root}/"; Dir::Etc "{root}/etc/"; Dir::State "{root}/";\n'
        f'Dir::State::lists "{root}/lists/"; Dir::State::status "{root}/status";\n'
        f'Dir::Cache "{root}/"; Dir::Log "{root}/log/"; APT::Architecture "amd64";\n'
        'APT::Architectures { "amd64"; }; APT::Sandbox::User "root"; Acquire::Retries "0";\n'
        'APT::Update::Error-Mode "any";\n'
    )
    environment = {"APT_CONFIG": str(root / "conf"), "LC_ALL": "C", "PATH": "/usr/bin:/bin"}

    def apt(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["apt-get", *words], env=environment, capture_output=True, text=True, timeout=60,
            check=False, cwd=root,
        )  # fmt: skip

    update = apt("update")
    if how in ("neither", "other key"):
        assert update.returncode != 0, update.stdout
        return
    assert update.returncode == 0, update.stderr
    fetched = apt("-y", "install", "--download-only", "libnccl-dev=2.19.3-1+cuda12.2")
    assert fetched.returncode == 0, fetched.stderr
    names = {path.name for path in (root / "archives").glob("*.deb")}
    assert len(names) == 2 and all("2.19.3" in name for name in names)
    assert len(PACKAGES) == 3
