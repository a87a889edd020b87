"""The certificate service: shows the certificate of HTTPS, and replaces it until the next start."""

from __future__ import annotations

import ssl

from simulator.errors import Body, RedfishError, property_value
from simulator.service import Falcon
from simulator.tree import AuthenticatedRequest, Reply, ResourceNode, WriteMethod, collection, link

V1 = "/redfish/v1"
SERVICE = f"{V1}/CertificateService"
CERTIFICATES = f"{V1}/Managers/bmc/NetworkProtocol/HTTPS/Certificates"
REPLACE = f"{SERVICE}/Actions/CertificateService.ReplaceCertificate"


def register(falcon: Falcon) -> None:
    """Add the certificate, its collection and the certificate service."""
    tree = falcon.tree

    def certificate() -> Body:
        return {
            "@odata.id": f"{CERTIFICATES}/1",
            "@odata.type": "#Certificate.v1_11_0.Certificate",
            "Id": "1",
            "Name": "HTTPS Certificate",
            "CertificateType": "PEM",
            "CertificateString": falcon.certificate_pem,
        }

    def service() -> Body:
        return {
            "@odata.id": SERVICE,
            "@odata.type": "#CertificateService.v1_2_1.CertificateService",
            "Id": "CertificateService",
            "Name": "Certificate Service",
            "Actions": {"#CertificateService.ReplaceCertificate": {"target": REPLACE}},
        }

    async def replace(call: AuthenticatedRequest) -> Reply:
        for name in ("CertificateString", "CertificateType", "CertificateUri"):
            if name not in call.body:
                raise RedfishError(
                    400, "ActionParameterMissing",
                    f"The action ReplaceCertificate requires the parameter {name} to be present in the request body.",
                    arguments=("ReplaceCertificate", name),
                )  # fmt: skip
        if call.body["CertificateType"] != "PEM":
            raise property_value("CertificateType", call.body["CertificateType"])
        if call.body["CertificateUri"] != link(f"{CERTIFICATES}/1"):
            raise property_value("CertificateUri", call.body["CertificateUri"])
        try:
            falcon.certificate_pem = falcon.replace_certificate(str(call.body["CertificateString"]))
        except (ssl.SSLError, ValueError) as error:
            raise RedfishError(
                400, "PropertyValueFormatError", f"The PEM text holds no certificate with its private key: {error}",
                arguments=("CertificateString",), related="#/CertificateString",
            ) from error  # fmt: skip
        return Reply(204, None, {"Location": f"{CERTIFICATES}/1"})

    tree.resource(CERTIFICATES, lambda: collection(CERTIFICATES, "Certificate", "Certificates", [f"{CERTIFICATES}/1"]))
    tree.resource(f"{CERTIFICATES}/1", certificate)
    tree.resource(SERVICE, service)
    tree.add(ResourceNode(REPLACE, None, {"POST": WriteMethod(replace)}))
