"""attnviz's side of `frontend.py`: a page with a button; a click on it shows one view of a trace.

    streamlit run benchmarks/frontend_app.py     # then open /?view=grid&layers=12&heads=12&tokens=64

As the project's app.py it only calls what is defined in modules: Streamlit runs this file anew after every click.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from frontend_views import main

main()
