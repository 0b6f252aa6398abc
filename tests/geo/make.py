#!/usr/bin/env python3
"""Writes the files in MaxMind's format that the tests read, by mmdb-writer 0.2 (PyPI):

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install mmdb-writer==0.2.7
    /tmp/venv/bin/python tests/geo/make.py

The networks are those for documentation (RFC 5737, RFC 3849).
"""

import os
import time

# The time of making stands in the files.
time.time = lambda: 1_790_000_000

from mmdb_writer import MMDBWriter
from netaddr import IPSet

HERE = os.path.dirname(os.path.abspath(__file__))


def write(name, of_type, records, **more):
    writer = MMDBWriter(6, of_type, ipv4_compatible=True, languages=["en"], description="made for tests", **more)
    for networks, record in records:
        writer.insert_network(IPSet(networks), record)
    writer.to_db_file(os.path.join(HERE, name))


def country(code, name):
    return {"country": {"geoname_id": 1, "iso_code": code, "names": {"en": name}},
            "registered_country": {"geoname_id": 2, "iso_code": "US", "names": {"en": "United States"}}}


COUNTRIES = [
    (["192.0.2.0/24", "2001:db8:de::/48"], country("DE", "Germany")),
    (["198.51.100.0/24", "2001:db8:a7::/48"], country("AT", "Austria")),
    (["203.0.113.0/25"], country("FR", "France")),
    # The country of whoever registered it only, as of a network that is everywhere.
    (["203.0.113.128/25"], {"registered_country": {"iso_code": "US"}}),
]

write("country.mmdb", "GeoLite2-Country", COUNTRIES)
write("moved.mmdb", "GeoLite2-Country",
      [(["192.0.2.0/24"], country("CH", "Switzerland")), (["198.51.100.0/24"], country("AT", "Austria"))])
write("city.mmdb", "GeoIP2-City", [
    (networks, {"city": {"names": {"en": "Somewhere"}}, "continent": {"code": "EU"},
                "location": {"latitude": 1.5, "longitude": -2.25}, "subdivisions": [{"iso_code": "X"}], **record})
    for networks, record in COUNTRIES])
write("asn.mmdb", "GeoLite2-ASN", [
    (["192.0.2.0/24", "2001:db8:de::/48"],
     {"autonomous_system_number": 64500, "autonomous_system_organization": "Example One"}),
    (["198.51.100.0/24"], {"autonomous_system_number": 64501, "autonomous_system_organization": "Example Two"}),
], int_type="u32")
# As IPinfo Lite has both: the country's name, its code, and the number as a text.
write("lite.mmdb", "ipinfo lite", [
    (["192.0.2.0/24"], {"country": "Germany", "country_code": "DE", "asn": "AS64500", "as_name": "Example One"}),
    (["198.51.100.0/24"], {"country": "Austria", "country_code": "AT"}),
])
# As IPinfo's older files have it.
write("flat.mmdb", "ipinfo country_asn", [
    (["192.0.2.0/24"], {"country": "DE", "country_name": "Germany", "asn": "AS64500"}),
])
# Neither countries nor numbers.
write("domains.mmdb", "GeoIP2-Domain", [(["192.0.2.0/24"], {"domain": "example.com"})])

writer = MMDBWriter(4, "DBIP-Country-Lite", languages=["en"], description="made for tests")
writer.insert_network(IPSet(["192.0.2.0/24"]), country("DE", "Germany"))
writer.to_db_file(os.path.join(HERE, "v4.mmdb"))
