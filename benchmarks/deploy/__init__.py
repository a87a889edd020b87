"""From a job description to container definitions and job scripts."""
