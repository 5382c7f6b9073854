"""`make load`: what a company's clusters cost the portal's processes and database."""
