#pragma once

#include <atomic>
#include <filesystem>

#include "framework/data/record.h"
#include "launcher/recipe/recipe.h"

namespace strait::compute {

// What a record of a run's data asks the model, and what it has as the answer.
struct SamplePrompt {
  std::string text;                  // of a chat what the user says last
  std::string answer;                // empty: the record is plain text, and `text` is its beginning
  std::optional<data::Record> chat;  // the messages before the answer (data::prompt_record)
};

// Of the first records that the run evaluates: those of data.eval, or those that data.hold_out
// takes from data.train. Records that ask nothing are passed over, and so are answers with the
// label false, which no completion should equal. Empty: they are in token files. StoreError where a
// file cannot be read.
std::vector<SamplePrompt> held_out_prompts(const recipe::Recipe& recipe, std::size_t most);

// Of the first records that the run trains on.
std::vector<SamplePrompt> training_prompts(const recipe::Recipe& recipe, std::size_t most);

// The flags that ask a model for one of these, as a shell takes them: "--chat --prompt 'what?'".
// The first one that is short; without any, a placeholder.
std::string prompt_flags(const std::vector<SamplePrompt>& prompts);

// Whether the run trains on chats, by its first record. False where that cannot be read.
bool trains_on_chats(const recipe::Recipe& recipe);

// A sample as one line: the beginnings of a prompt and of the model's answer. `same`: it is the
// expected one.
std::string sample_line(const SamplePrompt& prompt, const std::string& answer, bool same);

// A few prompts of the evaluation data with the trained model's completions and the expected ones.
// Empty where the data has no prompts, or the model does not fit here. Once `stops` is above 0 no
// further one is generated.
std::vector<std::string> sample_completions(const std::filesystem::path& run_directory,
                                            const std::atomic<int>& stops);

}  // namespace strait::compute
