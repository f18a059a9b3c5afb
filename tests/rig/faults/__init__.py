"""Equipment of the campaign of faults: deaths, power cuts, failing disks and servers, and runs."""
