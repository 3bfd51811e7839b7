"""The demo's reports, one module each, found by their variable `report`."""
