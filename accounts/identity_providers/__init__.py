"""Sign-in through a company's own identity provider: OpenID Connect and LDAP, and who may do what by their groups."""
