"""attnviz in the browser: `streamlit run app.py`."""

import streamlit as st

from attnviz.ui.look import ICON, add_style
from attnviz.ui.pages.compare import render_compare
from attnviz.ui.pages.heads import render_heads
from attnviz.ui.pages.statistics import render_statistics
from attnviz.ui.pages.vectors import render_vectors
from attnviz.ui.sidebar import render_sidebar

st.set_page_config(page_title="attnviz", page_icon=ICON, layout="wide")
page = st.navigation(
    [
        st.Page(render_heads, title="Heads", url_path="heads", default=True),
        st.Page(render_compare, title="Compare", url_path="compare"),
        st.Page(render_vectors, title="Vectors", url_path="vectors"),
        st.Page(render_statistics, title="Statistics", url_path="statistics"),
    ],
    position="top",
)
add_style()
render_sidebar(page.url_path or "heads")
page.run()
