#include "framework/store/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "framework/store/bounded_json.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

constexpr JsonLimits kRecordLimits{.depth = 64, .string_bytes = 1 << 20, .values = 1 << 20};
constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant",
                                                 "tool"};

[[noreturn]] void refuse_record(const std::string& origin, const std::string& why) {
  throw StoreError(StoreError::Kind::bad_input, origin + ": " + why);
}

std::string text_of(const nlohmann::json& object, const char* key, const std::string& origin) {
  const auto found = object.find(key);
  if (found == object.end()) refuse_record(origin, fmt::format("there is no \"{}\"", key));
  if (!found->is_string()) {
    refuse_record(origin,
                  fmt::format("\"{}\" is {} where a string is expected", key, found->type_name()));
  }
  return found->get<std::string>();
}

std::vector<Piece> chat_pieces(const nlohmann::json& messages, const std::string& origin) {
  if (!messages.is_array() || messages.empty()) {
    refuse_record(origin, "\"messages\" is not a list of {\"role\", \"content\"}");
  }
  std::vector<Piece> pieces;
  bool anything_to_learn = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("{}: message {}", origin, i + 1);
    if (!messages[i].is_object()) refuse_record(where, "it is not an object");
    const std::string role = text_of(messages[i], "role", where);
    const std::string content = text_of(messages[i], "content", where);
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      refuse_record(where, fmt::format("the role \"{}\" is none of system, developer, user, "
                                       "assistant, tool",
                                       role.substr(0, 64)));
    }
    const bool learnt = role == "assistant";
    anything_to_learn = anything_to_learn || learnt;
    pieces.push_back({role + ": ", false});
    pieces.push_back({content + "\n", learnt});
  }
  if (!anything_to_learn) {
    refuse_record(origin, "no message has the role \"assistant\": there is nothing to learn");
  }
  return pieces;
}

}  // namespace

Record parse_record(std::string_view line, const std::string& origin) {
  nlohmann::json root;
  try {
    root = parse_bounded_json(line, kRecordLimits);
  } catch (const JsonError& error) {
    refuse_record(origin, fmt::format("a line that is not JSON: {}", error.what()));
  }
  constexpr const char* kAllowed =
      "a record is an object with \"text\", or \"prompt\" and \"completion\", or \"messages\"";
  if (!root.is_object()) refuse_record(origin, kAllowed);
  const bool text = root.contains("text");
  const bool pair = root.contains("prompt") || root.contains("completion");
  const bool chat = root.contains("messages");
  if (!text && !pair && !chat)
    refuse_record(origin, fmt::format("{}; this one has none", kAllowed));
  if (static_cast<int>(text) + static_cast<int>(pair) + static_cast<int>(chat) > 1) {
    refuse_record(origin, fmt::format("{}; this one has more than one of them", kAllowed));
  }
  Record record;
  record.origin = origin;
  record.whole = !text;
  if (text) {
    record.pieces = {{text_of(root, "text", origin), true}};
  } else if (pair) {
    record.pieces = {{text_of(root, "prompt", origin), false},
                     {text_of(root, "completion", origin), true}};
  } else {
    record.pieces = chat_pieces(root["messages"], origin);
  }
  return record;
}

}  // namespace strait::store
