"""Certificates: explicit upper bounds on the error of a finite prompt, proved for every length."""

from largeprompt.certificates.jacobian import jacobian_certificate
from largeprompt.certificates.output import Certificate, certificate

__all__ = ["Certificate", "certificate", "jacobian_certificate"]
