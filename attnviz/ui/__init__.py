"""The Streamlit app: state, caches, sidebar, pages. It computes nothing: it asks, and shows."""
