#include "framework/data/preference_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/data/chat_record.h"

namespace strait::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;  // keeps the order of keys, which templates show

constexpr const char* kRejected = "rejected";

Answer text_answer(const std::string& origin, const char* key, std::string prompt,
                   std::string text) {
  return {origin, key, key != kRejected, false, std::move(prompt), std::move(text)};
}

Answer chat_answer(const std::string& origin, const char* key, const ordered_json& root,
                   const ordered_json& prompt, const ordered_json& messages) {
  ordered_json shared = ordered_json::object();
  for (const char* name : {"system", "tools"}) {
    if (root.contains(name)) shared[name] = root[name];
  }
  return {origin, key, key != kRejected, true, prompt.dump(), messages.dump(), shared.dump()};
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

std::array<Answer, 2> of_texts(const json& root, const std::string& origin) {
  std::string prompt;
  std::string chosen = required_string(root, "chosen", origin);
  std::string rejected = required_string(root, kRejected, origin);
  if (root.contains("prompt")) {
    prompt = required_string(root, "prompt", origin);
  } else {
    const std::size_t length = common_length(chosen, rejected);
    prompt = chosen.substr(0, length);
    chosen.erase(0, length);
    rejected.erase(0, length);
  }
  return {text_answer(origin, "chosen", prompt, chosen),
          text_answer(origin, kRejected, prompt, rejected)};
}

std::array<Answer, 2> of_messages(const ordered_json& root, const std::string& origin) {
  ordered_json chosen = root["chosen"];
  ordered_json rejected = root[kRejected];
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
  return {chat_answer(origin, "chosen", root, prompt, chosen),
          chat_answer(origin, kRejected, root, prompt, rejected)};
}

json::value_t type_of(const json& root, const char* key) {
  const auto found = root.is_object() ? root.find(key) : root.end();
  return found == root.end() ? json::value_t::null : found->type();
}

bool is_text_or_list(json::value_t type) {
  return type == json::value_t::string || type == json::value_t::array;
}

}  // namespace

// Only the answer itself is learnt, not what the assistant says before it.
Record answer_record(const Answer& asked, const Answer& answered) {
  Record record;
  if (asked.is_chat) {
    ordered_json chat = {{"messages", ordered_json::parse(asked.prompt)}};
    const ordered_json messages = ordered_json::parse(answered.text);
    chat["messages"].insert(chat["messages"].end(), messages.begin(), messages.end());
    chat.update(ordered_json::parse(asked.shared));
    const bool answers = messages.size() == 1 && messages.front().is_object() &&
                         messages.front().value("role", ordered_json()) == "assistant";
    if (!answers) {
      refuse_record(answered.origin,
                    fmt::format("\"{}\" has {} message{} after the prompt, and one of the role "
                                "\"assistant\" is expected",
                                answered.key, messages.size(), messages.size() == 1 ? "" : "s"));
    }
    const std::string text = chat.dump();
    record = message_record(json::parse(text), text, asked.origin);
    choose_targets(record, Targets::last);
  } else {
    record.origin = asked.origin;
    record.pieces = {{asked.prompt, false}, {answered.text, true}};
    record.whole = true;
  }
  record.undesirable = !asked.desirable;
  return record;
}

std::array<Answer, 2> parse_preference(std::string_view line, const std::string& origin) {
  const json root = parse_line(line, origin);
  const json::value_t type = type_of(root, "chosen");
  if (!is_text_or_list(type) || type_of(root, kRejected) != type) {
    refuse_record(origin,
                  "a preference is an object with \"chosen\" and \"rejected\", two texts or two "
                  "lists of messages, perhaps after a \"prompt\"; train.preference.loss trains on "
                  "nothing else");
  }
  return type == json::value_t::string ? of_texts(root, origin)
                                       : of_messages(ordered_json::parse(line), origin);
}

std::vector<Answer> parse_rated(std::string_view line, const std::string& origin) {
  const json root = parse_line(line, origin);
  if (root.is_object() && (root.contains("chosen") || root.contains(kRejected))) {
    auto [chosen, rejected] = parse_preference(line, origin);
    return {std::move(chosen), std::move(rejected)};
  }
  const json::value_t type = type_of(root, "completion");
  const bool rated = root.is_object() && root.contains("label") && is_rating(root["label"]);
  if (!rated || !is_text_or_list(type) || type_of(root, "prompt") != type) {
    refuse_record(
        origin,
        "a rated answer is an object with \"prompt\" and \"completion\", two texts or two "
        "lists of messages, and a \"label\", true or false; or it has \"chosen\" and "
        "\"rejected\"; train.preference.loss = \"kto\" trains on nothing else");
  }
  Answer answer = text_answer(origin, "completion", "", "");
  if (type == json::value_t::string) {
    answer.prompt = required_string(root, "prompt", origin);
    answer.text = required_string(root, "completion", origin);
  } else {
    const ordered_json ordered = ordered_json::parse(line);
    answer = chat_answer(origin, "completion", ordered, ordered["prompt"], ordered["completion"]);
  }
  answer.desirable = root["label"] == true || root["label"] == 1;
  return {std::move(answer)};
}

}  // namespace strait::data
