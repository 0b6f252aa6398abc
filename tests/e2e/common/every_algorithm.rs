//! Rules of every algorithm, and requests that meet them.

/// Rules of each algorithm. What they decide does not depend on how fast the test runs.
pub(crate) const EVERY_ALGORITHM: &str = "
  - name: login
    match: { path: /login }
    upstream: up
    flow:
      - { name: bucket, limit: 4/6h, burst: 4, key: client_ip }
      - { name: log, algorithm: sliding_log, limit: 3/6h, key: \"header:x-tenant\" }
  - name: search
    match: { path: /search }
    upstream: up
    flow:
      - { name: window, algorithm: sliding_window, limit: 5/6h, buckets: 10, strict: true, key: \"header:x-tenant\" }
      - { name: dry, limit: 2/6h, dry_run: true }
  - name: cart
    match: { path: /cart }
    upstream: up
    flow:
      - { name: fixed, algorithm: fixed_window, limit: 6/6h, align: first_request, key: \"query:user\" }
      - { name: leaky, algorithm: leaky_bucket, limit: 9/6h, burst: 9, cost: { default: 1, GET: 2 } }
  - name: rest
    match: { path_prefix: /rest }
    upstream: up
    flow: [{ name: at-once, concurrency: 1, key: client_ip }]
  - { name: closed, match: { path: /closed }, upstream: up, access: { deny: [127.0.0.0/8] } }
";

/// Returns paths with tenants, which look random and follow from the seed.
pub(crate) fn requests(mut seed: u64, count: usize) -> Vec<(String, String)> {
    let mut next = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut request = || {
        let path = ["/login", "/search", "/cart?user=", "/rest/a", "/none"]
            [usize::try_from(next(5)).expect("small")];
        let user = if path.ends_with('=') { next(3).to_string() } else { String::new() };
        (format!("{path}{user}"), format!("tenant-{}", next(4)))
    };
    (0..count).map(|_| request()).collect()
}
