"""attnviz in the browser: `streamlit run app.py`."""

import streamlit as st

from attnviz.ui.garbage import spare_collector
from attnviz.ui.look import ICON, add_style
from attnviz.ui.pages.compare import render_compare
from attnviz.ui.pages.guide import render_guide
from attnviz.ui.pages.heads import render_heads
from attnviz.ui.pages.statistics import render_statistics
from attnviz.ui.pages.steps import render_steps
from attnviz.ui.pages.vectors import render_vectors
from attnviz.ui.sidebar import render_sidebar
from attnviz.ui.state import draw_the_rest

st.set_page_config(page_title="attnviz", page_icon=ICON, layout="wide")
PAGES = {
    "heads": ("Heads", render_heads),
    "compare": ("Compare", render_compare),
    "vectors": ("Vectors", render_vectors),
    "steps": ("Steps", render_steps),
    "statistics": ("Statistics", render_statistics),
    "guide": ("Guide", render_guide),
}
pages = {
    path: st.Page(render, title=title, url_path=path, default=path == "heads")
    for path, (title, render) in PAGES.items()
}
page = st.navigation(list(pages.values()), position="top")
add_style()
render_sidebar()
page.run()
draw_the_rest()
spare_collector()
