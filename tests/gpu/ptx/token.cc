#include "tests/gpu/ptx/token.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace muster::ptx {
namespace {

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$' ||
         c == '%';
}

constexpr std::string_view kPunctuation = "{}()[],;:@!+-|<>=";

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      // A PTX image in a fat binary ends with null characters.
      if (absl::ascii_isspace(static_cast<unsigned char>(c)) || c == '\0') {
        ++at_;
      } else if (StartsWith("//")) {
        SkipTo(text_.find('\n', at_));
      } else if (StartsWith("/*")) {
        const size_t end = text_.find("*/", at_);
        if (end == text_.npos) return Error("comment without end");
        SkipTo(end + 2);
      } else if (IsWordCharacter(c)) {
        Emit(WordEnd());
      } else if (c == '"') {
        const size_t end = text_.find('"', at_ + 1);
        if (end == text_.npos) return Error("string without end");
        Emit(end + 1);
      } else if (kPunctuation.find(c) != kPunctuation.npos) {
        Emit(at_ + 1);
      } else {
        return Error(absl::StrCat("unexpected character '", std::string(1, c), "'"));
      }
    }
    tokens_.push_back({{}, line_});
    return std::move(tokens_);
  }

 private:
  bool StartsWith(std::string_view prefix) const {
    return text_.substr(at_, prefix.size()) == prefix;
  }
  // The end of the word, which may contain "::" as in ld.global.L2::128B.u32.
  size_t WordEnd() const {
    size_t end = at_;
    while (end < text_.size()) {
      if (IsWordCharacter(text_[end])) {
        ++end;
      } else if (text_.substr(end, 2) == "::") {
        end += 2;
      } else {
        break;
      }
    }
    return end;
  }
  void SkipTo(size_t end) {
    if (end > text_.size()) end = text_.size();
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
  }
  void Emit(size_t end) {
    tokens_.push_back({text_.substr(at_, end - at_), line_});
    at_ = end;
  }
  absl::Status Error(absl::string_view problem) const {
    return absl::InvalidArgumentError(absl::StrCat("PTX line ", line_, ": ", problem));
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view ptx) { return Tokenizer(ptx).Run(); }

}  // namespace muster::ptx
