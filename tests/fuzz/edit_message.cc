#include "tests/fuzz/edit_message.h"

#include <cstdint>
#include <iterator>
#include <limits>
#include <string>

#include "common/text/utf8.h"

namespace muster::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Words = absl::Span<const std::string>;

constexpr int kDepth = 8;  // layers contain layers
constexpr size_t kTextBytes = 64;
constexpr size_t kLongText = 20'000;  // beyond most limits of texts

uint64_t Number(FuzzedDataProvider& input) {
  constexpr uint64_t kEdges[] = {0,
                                 1,
                                 std::numeric_limits<uint64_t>::max(),
                                 uint64_t{1} << 63,
                                 uint64_t{1} << 31,
                                 std::numeric_limits<int64_t>::max(),
                                 std::numeric_limits<int32_t>::max()};
  switch (input.ConsumeIntegralInRange(0, 2)) {
    case 0:
      return kEdges[input.ConsumeIntegralInRange<size_t>(0, std::size(kEdges) - 1)];
    case 1:
      return input.ConsumeIntegral<uint8_t>();
    default:
      return input.ConsumeIntegral<uint64_t>();
  }
}

double Fraction(FuzzedDataProvider& input) {
  using Limits = std::numeric_limits<double>;
  constexpr double kEdges[] = {0,
                               -1,
                               Limits::quiet_NaN(),
                               Limits::infinity(),
                               -Limits::infinity(),
                               Limits::max(),
                               Limits::denorm_min()};
  if (input.ConsumeBool())
    return kEdges[input.ConsumeIntegralInRange<size_t>(0, std::size(kEdges) - 1)];
  return input.ConsumeIntegral<int16_t>() / 64.0;
}

std::string Text(FuzzedDataProvider& input, Words words, bool is_utf8) {
  const size_t choice = input.ConsumeIntegralInRange<size_t>(0, words.size() + 2);
  if (choice < words.size()) return words[choice];
  if (choice == words.size()) return "";
  if (choice == words.size() + 1) return std::string(kLongText, 'x');
  std::string bytes = input.ConsumeRandomLengthString(kTextBytes);
  return is_utf8 ? ToUtf8(bytes) : bytes;
}

void Edit(FuzzedDataProvider& input, Words words, int depth, Message& message);

// Sets the field or, if it is repeated, adds an element.
void Set(FuzzedDataProvider& input, Words words, int depth, const FieldDescriptor& field,
         Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message& inner = many ? *reflection.AddMessage(&message, &field)
                            : *reflection.MutableMessage(&message, &field);
      Edit(input, words, depth - 1, inner);
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = Text(input, words, field.type() == FieldDescriptor::TYPE_STRING);
      many ? reflection.AddString(&message, &field, std::move(text))
           : reflection.SetString(&message, &field, std::move(text));
      return;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = input.ConsumeIntegral<uint8_t>() % (field.enum_type()->value_count() + 2);
      many ? reflection.AddEnumValue(&message, &field, value)
           : reflection.SetEnumValue(&message, &field, value);
      return;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool value = input.ConsumeBool();
      many ? reflection.AddBool(&message, &field, value)
           : reflection.SetBool(&message, &field, value);
      return;
    }
#define NUMBER(TYPE, NAME, VALUE)                         \
  case FieldDescriptor::CPPTYPE_##TYPE: {                 \
    const auto value = VALUE;                             \
    many ? reflection.Add##NAME(&message, &field, value)  \
         : reflection.Set##NAME(&message, &field, value); \
    return;                                               \
  }
      NUMBER(UINT64, UInt64, Number(input))
      NUMBER(INT64, Int64, static_cast<int64_t>(Number(input)))
      NUMBER(UINT32, UInt32, static_cast<uint32_t>(Number(input)))
      NUMBER(INT32, Int32, static_cast<int32_t>(Number(input)))
      NUMBER(DOUBLE, Double, Fraction(input))
      NUMBER(FLOAT, Float, static_cast<float>(Fraction(input)))
#undef NUMBER
  }
}

void Edit(FuzzedDataProvider& input, Words words, int depth, Message& message) {
  const int fields = message.GetDescriptor()->field_count();
  if (depth == 0 || fields == 0) return;
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor& field =
      *message.GetDescriptor()->field(input.ConsumeIntegralInRange(0, fields - 1));
  const int choice = input.ConsumeIntegralInRange(0, 7);
  if (!field.is_repeated()) {
    if (choice == 0) return reflection.ClearField(&message, &field);
    return Set(input, words, depth, field, message);
  }
  const int size = reflection.FieldSize(message, &field);
  if (size == 0 || choice < 3) return Set(input, words, depth, field, message);
  if (choice == 3) return reflection.RemoveLast(&message, &field);
  if (choice == 4) return reflection.SwapElements(&message, &field, 0, size - 1);
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
    return Set(input, words, depth, field, message);
  const int index = input.ConsumeIntegralInRange(0, size - 1);
  Edit(input, words, depth - 1, *reflection.MutableRepeatedMessage(&message, &field, index));
}

}  // namespace

void EditMessage(FuzzedDataProvider& input, Words words, Message& message) {
  Edit(input, words, kDepth, message);
}

}  // namespace muster::fuzz
