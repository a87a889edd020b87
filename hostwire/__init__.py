"""What the site and the agent of a host say to each other: shapes, and how they are signed. Knows neither of them."""
