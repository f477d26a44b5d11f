#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/record.h"

namespace strait::data {

// A prompt and an answer to it, as a line has them.
struct Answer {
  std::string origin;  // "data/train.jsonl:17", for messages
  const char* key = "completion";
  bool desirable = true;
  bool is_chat = false;  // prompt and answer are JSON lists of messages, not texts
  std::string prompt = {};
  std::string text = {};
  std::string shared = {};  // of a chat: JSON of its "system" and "tools"
};

// The answer to a prompt, perhaps to another one of the same form, as a record whose target is the
// answer. Throws StoreError bad_input that starts with the origin: of messages, one of the
// assistant's has to follow the prompt.
Record answer_record(const Answer& asked, const Answer& answered);

// Parses a line as TRL writes preferences, and returns the chosen answer, then the rejected one:
// "chosen" and "rejected", two texts or two lists of messages, perhaps after a "prompt" of the same
// form. Without such a prompt, what both begin with is the prompt. Both chats have the same
// "tools"; other keys are ignored. Throws StoreError bad_input that starts with `origin`.
std::array<Answer, 2> parse_preference(std::string_view line, const std::string& origin);

// The answers of a line that says which are desirable: of "prompt", "completion" and "label", or
// both answers of a preference.
std::vector<Answer> parse_rated(std::string_view line, const std::string& origin);

}  // namespace strait::data
