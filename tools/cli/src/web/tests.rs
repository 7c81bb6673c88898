//! The page over HTTP: what is served without the token, what is refused, and what hostile requests and names do.

