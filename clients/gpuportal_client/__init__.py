"""A command-line client and an MCP server for the HTTP API of gpuportal."""
