"""An HTTP service and a page over one index; `logt serve` starts it, `logt.server.client` talks to it."""
