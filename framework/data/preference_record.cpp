#include "framework/data/preference_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/data/chat_record.h"
#include "framework/data/record_fields.h"

namespace strait::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;  // keeps the order of keys, which templates show

Record text_answer(const std::string& prompt, const std::string& answer,
                   const std::string& origin) {
  Record record;
  record.origin = origin;
  record.pieces = {{prompt, false}, {answer, true}};
  record.whole = true;
  return record;
}

// As TRL: up to the first difference, and a space before it belongs to the answers.
std::size_t common_length(const std::string& chosen, const std::string& rejected) {
  const auto [end, other] = std::ranges::mismatch(chosen, rejected);
  auto length = static_cast<std::size_t>(end - chosen.begin());
  // Not inside of a character.
  while (length > 0 && length < chosen.size() &&
         (static_cast<unsigned char>(chosen[length]) & 0xc0U) == 0x80U) {
    --length;
  }
  return length > 0 && chosen[length - 1] == ' ' ? length - 1 : length;
}

Preference of_texts(const json& root, const std::string& origin) {
  std::string prompt;
  std::string chosen = required_string(root, "chosen", origin);
  std::string rejected = required_string(root, "rejected", origin);
  if (root.contains("prompt")) {
    prompt = required_string(root, "prompt", origin);
  } else {
    const std::size_t length = common_length(chosen, rejected);
    prompt = chosen.substr(0, length);
    chosen.erase(0, length);
    rejected.erase(0, length);
  }
  return {text_answer(prompt, chosen, origin), text_answer(prompt, rejected, origin)};
}

// The chat of one answer. Only the answer itself is learnt, not what the assistant says before it.
Record message_answer(const ordered_json& root, const ordered_json& prompt,
                      const ordered_json& answer, const char* key, const std::string& origin) {
  ordered_json chat = {{"messages", prompt}};
  chat["messages"].insert(chat["messages"].end(), answer.begin(), answer.end());
  for (const char* shared : {"system", "tools"}) {
    if (root.contains(shared)) chat[shared] = root[shared];
  }
  const bool answers = answer.size() == 1 && answer.front().is_object() &&
                       answer.front().value("role", ordered_json()) == "assistant";
  if (!answers) {
    refuse_record(origin, fmt::format("\"{}\" has {} message{} after the prompt, and one of the "
                                      "role \"assistant\" is expected",
                                      key, answer.size(), answer.size() == 1 ? "" : "s"));
  }
  const std::string text = chat.dump();
  Record record = message_record(json::parse(text), text, origin);
  choose_targets(record, Targets::last);
  return record;
}

Preference of_messages(const ordered_json& root, const std::string& origin) {
  ordered_json chosen = root["chosen"];
  ordered_json rejected = root["rejected"];
  ordered_json prompt = ordered_json::array();
  if (root.contains("prompt") && root["prompt"].is_array()) {
    prompt = root["prompt"];
  } else {
    const auto [end, other] = std::ranges::mismatch(chosen, rejected);
    const auto common = end - chosen.begin();
    prompt.insert(prompt.end(), chosen.begin(), end);
    chosen.erase(chosen.begin(), chosen.begin() + common);
    rejected.erase(rejected.begin(), rejected.begin() + common);
  }
  return {message_answer(root, prompt, chosen, "chosen", origin),
          message_answer(root, prompt, rejected, "rejected", origin)};
}

}  // namespace

Preference parse_preference(std::string_view line, const std::string& origin) {
  const json root = parse_line(line, origin);
  const auto form = [&](const char* key) {
    const auto found = root.is_object() ? root.find(key) : root.end();
    return found == root.end() ? json::value_t::null : found->type();
  };
  const json::value_t type = form("chosen");
  if ((type != json::value_t::string && type != json::value_t::array) || form("rejected") != type) {
    refuse_record(origin,
                  "a preference is an object with \"chosen\" and \"rejected\", two texts or two "
                  "lists of messages, perhaps after a \"prompt\"; train.preference.loss trains on "
                  "nothing else");
  }
  return type == json::value_t::string ? of_texts(root, origin)
                                       : of_messages(ordered_json::parse(line), origin);
}

}  // namespace strait::data
