"""Parts of a page that Streamlit does not have: a script in the browser and the function that mounts it."""
