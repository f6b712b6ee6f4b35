// Reads lists that a server returns in pages.
#ifndef MUSTER_CLI_PAGES_H_
#define MUSTER_CLI_PAGES_H_

namespace muster::cli {

// The first page with the items of all others, for each of which `append(page, all)` is called.
// `call` returns the page of a request. `prepare(all, request)`, if given, is called before each
// further page and may end the list; next_page_token is then not empty.
template <typename Request, typename Call, typename Append, typename Prepare>
auto ReadPages(Request request, Call call, Append append, Prepare prepare) {
  auto all = call(request);
  while (all.ok() && !all->next_page_token().empty() && prepare(*all, request)) {
    request.set_page_token(all->next_page_token());
    auto page = call(request);
    if (!page.ok()) return page;
    append(*page, *all);
    all->set_next_page_token(page->next_page_token());
  }
  return all;
}

template <typename Request, typename Call, typename Append>
auto ReadPages(Request request, Call call, Append append) {
  return ReadPages(request, call, append, [](const auto&, auto&) { return true; });
}

}  // namespace muster::cli

#endif  // MUSTER_CLI_PAGES_H_
