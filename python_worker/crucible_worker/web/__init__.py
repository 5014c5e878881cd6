"""The pages that people look at, served live, and the endpoint of OpenAI's API (extra `web`).

`page.html.j2`, `pages.css`, `pages/` and `vendor/` are data: a report file has them inside, the server hands them out.
"""
