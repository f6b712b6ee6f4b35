#include "tests/gpu/ptx/syntax.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/gpu/ptx/token.h"
#include "tests/gpu/ptx/type_size.h"

namespace muster::ptx {
namespace {

bool ParseDigits(std::string_view digits, int base, uint64_t& value) {
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  return result.ec == std::errc() && result.ptr == end && !digits.empty();
}

bool IsNumber(std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

// Parses 12, 12U, 0x1F, 0f3F800000 and 0d3FF0000000000000.
bool ParseNumber(std::string_view text, uint64_t& value, NumberType& type) {
  type = NumberType::kInteger;
  const std::string_view prefix = text.substr(0, 2);
  if (prefix == "0f" || prefix == "0F" || prefix == "0d" || prefix == "0D") {
    const bool single = prefix[1] == 'f' || prefix[1] == 'F';
    type = single ? NumberType::kFloat : NumberType::kDouble;
    return text.size() == (single ? 10u : 18u) && ParseDigits(text.substr(2), 16, value);
  }
  if (text.ends_with('U')) text.remove_suffix(1);
  if (prefix == "0x" || prefix == "0X") return ParseDigits(text.substr(2), 16, value);
  return ParseDigits(text, 10, value);
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<SyntaxTree> Run() {
    while (!Peek().empty()) RETURN_IF_ERROR(ParseDirective());
    return std::move(tree_);
  }

 private:
  std::string_view Peek() const { return tokens_[at_].text; }
  std::string_view Next() {
    const std::string_view text = Peek();
    if (!text.empty()) ++at_;
    return text;
  }
  bool Accept(std::string_view text) {
    if (Peek() != text) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(std::string_view text) {
    if (Accept(text)) return absl::OkStatus();
    return Unexpected(absl::StrCat("'", std::string(text), "'"));
  }
  absl::Status Unexpected(absl::string_view expected) const {
    return absl::InvalidArgumentError(absl::StrCat("PTX line ", tokens_[at_].line, ": expected ",
                                                   expected, ", found '", std::string(Peek()),
                                                   "'"));
  }
  absl::Status Unsupported() const {
    return absl::UnimplementedError(absl::StrCat(
        "PTX line ", tokens_[at_].line, ": unsupported directive '", std::string(Peek()), "'"));
  }
  absl::Status ParseName(std::string_view& name) {
    const char first = Peek().empty() ? '\0' : Peek()[0];
    if (first != '_' && first != '%' && first != '$' && !(first >= 'a' && first <= 'z') &&
        !(first >= 'A' && first <= 'Z')) {
      return Unexpected("a name");
    }
    name = Next();
    return absl::OkStatus();
  }
  absl::Status ParseInteger(uint64_t& value) {
    NumberType type;
    if (!ParseNumber(Peek(), value, type) || type != NumberType::kInteger) {
      return Unexpected("an integer");
    }
    Next();
    return absl::OkStatus();
  }

  absl::Status ParseDirective() {
    while (Accept(".visible") || Accept(".weak") || Accept(".extern")) {
    }
    if (Accept(".version") || Accept(".target") || Accept(".address_size")) {
      do Next();
      while (Accept(","));
      return absl::OkStatus();
    }
    if (Peek() == ".entry" || Peek() == ".func") return ParseFunction();
    if (Peek() != ".shared") return Unsupported();
    ASSIGN_OR_RETURN(Variable variable, ParseVariable());
    tree_.shared.push_back(variable);
    return Expect(";");
  }

  absl::Status ParseFunction() {
    Function function;
    function.entry = Next() == ".entry";
    if (Peek() == "(") RETURN_IF_ERROR(ParseParameters(function.results));
    RETURN_IF_ERROR(ParseName(function.name));
    if (Peek() == "(") RETURN_IF_ERROR(ParseParameters(function.parameters));
    while (Peek() != "{") {
      if (Accept(";")) return absl::OkStatus();  // a declaration
      if (Accept(".maxntid")) {
        function.max_threads = 1;
        do {
          uint64_t threads;
          RETURN_IF_ERROR(ParseInteger(threads));
          function.max_threads *= static_cast<uint32_t>(threads);
        } while (Accept(","));
      } else if (Accept(".minnctapersm") || Accept(".maxnreg")) {
        uint64_t ignored;  // affects ptxas only
        RETURN_IF_ERROR(ParseInteger(ignored));
      } else {
        return Unsupported();
      }
    }
    Next();
    for (int depth = 1; depth > 0;) {
      if (Peek() == "{") ++depth;
      if (Peek() == "}") --depth;
      if (depth == 0) break;
      RETURN_IF_ERROR(ParseStatement(function.body));
    }
    tree_.functions.push_back(std::move(function));
    return Expect("}");
  }

  absl::Status ParseParameters(std::vector<Variable>& parameters) {
    RETURN_IF_ERROR(Expect("("));
    if (Accept(")")) return absl::OkStatus();
    do {
      ASSIGN_OR_RETURN(Variable parameter, ParseVariable());
      parameters.push_back(parameter);
    } while (Accept(","));
    return Expect(")");
  }

  // Parses `.param .align 8 .b8 name[24]`, without the separator that follows.
  absl::StatusOr<Variable> ParseVariable() {
    Variable variable;
    variable.space = Next().substr(1);
    if (Accept(".align")) RETURN_IF_ERROR(ParseInteger(variable.alignment));
    if (TypeBytes(Peek().substr(Peek().empty() ? 0 : 1)) == 0) return Unsupported();
    variable.type = Next().substr(1);
    variable.alignment = std::max<uint64_t>(variable.alignment, TypeBytes(variable.type));
    RETURN_IF_ERROR(ParseName(variable.name));
    if (Accept("[")) {
      variable.elements = 0;
      if (Peek() != "]") RETURN_IF_ERROR(ParseInteger(variable.elements));
      RETURN_IF_ERROR(Expect("]"));
    }
    return variable;
  }

  absl::Status ParseStatement(std::vector<Statement>& body) {
    Statement statement;
    statement.line = tokens_[at_].line;
    if (Accept("{")) {
      statement.kind = Statement::Kind::kOpenScope;
    } else if (Accept("}")) {
      statement.kind = Statement::Kind::kCloseScope;
    } else if (Accept(".pragma")) {
      Next();
      return Expect(";");
    } else if (Accept(".reg")) {
      return ParseRegisters(statement, body);
    } else if (Peek() == ".shared" || Peek() == ".param") {
      statement.kind = Statement::Kind::kVariable;
      ASSIGN_OR_RETURN(statement.variable, ParseVariable());
      RETURN_IF_ERROR(Expect(";"));
    } else if (Peek().starts_with('.')) {
      return Unsupported();
    } else if (tokens_[at_ + 1].text == ":") {
      statement.kind = Statement::Kind::kLabel;
      RETURN_IF_ERROR(ParseName(statement.label));
      Next();
    } else {
      RETURN_IF_ERROR(ParseInstruction(statement));
    }
    body.push_back(std::move(statement));
    return absl::OkStatus();
  }

  // Parses the rest of `.reg .b32 %r<23>;` or `.reg .b32 %a, %b;`.
  absl::Status ParseRegisters(Statement& statement, std::vector<Statement>& body) {
    statement.kind = Statement::Kind::kRegister;
    RegisterDeclaration& registers = statement.registers;
    registers.type = Next().substr(1);
    do {
      RETURN_IF_ERROR(ParseName(registers.name));
      registers.count = 0;
      if (Accept("<")) {
        uint64_t count;
        RETURN_IF_ERROR(ParseInteger(count));
        registers.count = static_cast<uint32_t>(count);
        RETURN_IF_ERROR(Expect(">"));
      }
      body.push_back(statement);
    } while (Accept(","));
    return Expect(";");
  }

  absl::Status ParseInstruction(Statement& statement) {
    if (Accept("@")) {
      statement.guard_negated = Accept("!");
      RETURN_IF_ERROR(ParseName(statement.guard));
    }
    RETURN_IF_ERROR(ParseName(statement.opcode));
    while (Peek() != ";") {
      ASSIGN_OR_RETURN(Operand operand, ParseOperand());
      statement.operands.push_back(std::move(operand));
      if (!Accept(",") && Peek() != ";") return Unexpected("',' or ';'");
    }
    return Expect(";");
  }

  absl::StatusOr<Operand> ParseOperand() {
    Operand operand;
    if (Accept("[")) {
      operand.kind = Operand::Kind::kAddress;
      const bool number = IsNumber(Peek());
      if (!number) RETURN_IF_ERROR(ParseName(operand.name));
      if (number || Accept("+")) RETURN_IF_ERROR(ParseSigned(operand));
      RETURN_IF_ERROR(Expect("]"));
      return operand;
    }
    if (Peek() == "{" || Peek() == "(") {
      const std::string_view end = Next() == "{" ? "}" : ")";
      operand.kind = Operand::Kind::kList;
      if (Accept(end)) return operand;
      do {
        ASSIGN_OR_RETURN(Operand element, ParseOperand());
        operand.elements.push_back(std::move(element));
      } while (Accept(","));
      RETURN_IF_ERROR(Expect(end));
      return operand;
    }
    if (Peek() == "-" || IsNumber(Peek())) {
      operand.kind = Operand::Kind::kNumber;
      RETURN_IF_ERROR(ParseSigned(operand));
      return operand;
    }
    RETURN_IF_ERROR(ParseName(operand.name));
    return operand;
  }

  absl::Status ParseSigned(Operand& operand) {
    const bool negative = Accept("-");
    if (!ParseNumber(Peek(), operand.number, operand.number_type) ||
        (negative && operand.number_type != NumberType::kInteger)) {
      return Unexpected("a number");
    }
    Next();
    if (negative) operand.number = -operand.number;
    return absl::OkStatus();
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  SyntaxTree tree_;
};

}  // namespace

absl::StatusOr<SyntaxTree> ParseSyntax(std::string_view ptx) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(ptx));
  return Parser(std::move(tokens)).Run();
}

}  // namespace muster::ptx
