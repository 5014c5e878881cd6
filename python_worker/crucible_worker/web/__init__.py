"""The pages that people look at: their files, and the server that serves them live (extra `web`).

`page.html.j2`, `pages.css`, `pages/` and `vendor/` are data: a report file has them inside, the server hands them out.
"""
