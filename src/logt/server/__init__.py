"""HTTP server for one index, with a JSON API and a web page; started by `logt serve`."""
