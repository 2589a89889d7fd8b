"""The backend that places each part of a graph on the device where it runs best."""
