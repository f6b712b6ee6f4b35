// Pieces of Markdown.
#ifndef MUSTER_DOCS_REFERENCE_MARKDOWN_H_
#define MUSTER_DOCS_REFERENCE_MARKDOWN_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::reference {

using Row = std::vector<std::string>;

// A table followed by an empty line; empty if there are no rows.
std::string Table(const Row& heads, const std::vector<Row>& rows);

// `text` as code; empty if `text` is.
std::string Code(absl::string_view text);

// The end of a page's first paragraph: where the page comes from and how to update it.
std::string GeneratedFrom(absl::string_view source);

}  // namespace muster::reference

#endif  // MUSTER_DOCS_REFERENCE_MARKDOWN_H_
