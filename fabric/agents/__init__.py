"""The agents of hosts: enrolment, reports, commands."""
