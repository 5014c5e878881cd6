"""Files of rows and columns, CSV and Parquet, read by a child process: only it imports the libraries for them."""
