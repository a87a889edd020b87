"""OpenLDAP's slapd as a process of a test's own, with people and groups, where Debian's package is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from falconweb.launch.broker import free_port
from simulator.certificates import server_certificate
from tests.waiting import wait_for

SLAPD, SLAPADD = shutil.which("slapd", path="/usr/sbin"), shutil.which("slapadd", path="/usr/sbin")
NOT_INSTALLED = "slapd is not installed: apt-get install slapd"
BASE, SITE_DN, SITE_PASSWORD = "dc=example,dc=org", "cn=site,dc=example,dc=org", "of-the-site-1"
CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
pidfile {folder}/pid
TLSCertificateFile {certificate}
TLSCertificateKeyFile {key}
database mdb
suffix "dc=example,dc=org"
rootdn "cn=root,dc=example,dc=org"
rootpw of-the-root-1
directory {folder}/data
overlay memberof
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=site,dc=example,dc=org" read by * none
"""
PEOPLE = """
dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: cn=site,dc=example,dc=org
objectClass: person
cn: site
sn: site
userPassword: of-the-site-1

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: uid=ada,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: ada
cn: Ada Lovelace
sn: Lovelace
mail: ada@example.org
userPassword: of-ada-in-the-directory

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
userPassword: of-bob-in-the-directory

dn: cn=x\\2Cy (*)\\5Cz,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: odd
cn: x,y (*)\\z
sn: odd
userPassword: of-odd-in-the-directory
"""
GROUPS = """
dn: cn=vision,ou=groups,dc=example,dc=org
changetype: add
objectClass: groupOfNames
cn: vision
member: uid=ada,ou=people,dc=example,dc=org
member: cn=x\\2Cy (*)\\5Cz,ou=people,dc=example,dc=org

dn: cn=operators,ou=groups,dc=example,dc=org
changetype: add
objectClass: groupOfNames
cn: operators
member: cn=site,dc=example,dc=org
"""


class Directory:
    """A running slapd at `address` (StartTLS too) and `secure_address`; `ca` is PEM. A context manager that ends it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="falconweb-slapd-"))
        (self.folder / "data").mkdir()
        certificate = server_certificate(self.folder)
        self.ca = certificate.pem
        self.address, self.secure_address = (f"{one}://127.0.0.1:{free_port()}" for one in ("ldap", "ldaps"))
        self.configuration = self.folder / "slapd.conf"
        self.configuration.write_text(
            CONFIGURATION.format(folder=self.folder, certificate=certificate.certificate, key=certificate.key)
        )
        subprocess.run(
            [str(SLAPADD), "-f", self.configuration], input=PEOPLE, text=True, check=True, capture_output=True
        )
        self.start()
        self.change(GROUPS)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        addresses = f"{self.address} {self.secure_address}"
        self.process = subprocess.Popen(
            [str(SLAPD), "-f", str(self.configuration), "-h", addresses, "-d", "0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(self._listens, "slapd does not listen")

    def _listens(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", int(self.address.rpartition(":")[2]))) == 0

    def change(self, ldif: str) -> None:
        """Change entries as its administrator."""
        command = ["ldapmodify", "-x", "-H", self.address, "-D", "cn=root,dc=example,dc=org", "-w", "of-the-root-1"]
        subprocess.run(command, input=ldif, text=True, check=True, capture_output=True)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
