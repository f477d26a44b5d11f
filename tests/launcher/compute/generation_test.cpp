#include "launcher/compute/generation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "launcher/base/errors.h"
#include "tests/refusal_of.h"

namespace strait::compute {
namespace {

using run::ExtendBatch;
using run::ExtendSequence;
using run::InferenceAnswer;
using run::InferenceRequest;

// A token is a byte; 0 ends a text, 1 is a control token.
struct Bytes : TextCoder {
  std::vector<std::int32_t> encode(const std::string& text) override {
    return {text.begin(), text.end()};
  }
  std::vector<std::int32_t> encode_chat(const data::Record& chat) override {
    return encode(chat.chat);
  }
  std::string decode(std::span<const std::int32_t> /*prompt*/,
                     std::span<const std::int32_t> answer) override {
    std::string text;
    for (const std::int32_t token : answer) {
      if (token != 1) text += static_cast<char>(token);
    }
    return text;
  }
  bool is_end(std::int64_t token) const override { return token == 0; }
  std::optional<std::int32_t> control_token(const std::string& name) override {
    return name == "<|end|>" ? std::optional(1) : std::nullopt;
  }
};

models::ModelDescription model_of(std::int64_t positions) {
  models::ModelDescription model;
  model.vocabulary = 256;
  model.positions = positions;
  return model;
}

std::vector<Prompt> prompts(const std::vector<std::vector<std::int32_t>>& texts) {
  std::vector<Prompt> named;
  for (const auto& tokens : texts) named.push_back({tokens, fmt::format("f:{}", named.size() + 1)});
  return named;
}

cli::GenerationOptions limited(std::int64_t tokens, std::vector<std::string> stops = {}) {
  cli::GenerationOptions options;
  options.max_tokens = tokens;
  options.stops = std::move(stops);
  return options;
}

// A model whose answer to prompt i is texts[i]; answers come in an order that `random` chooses,
// each after a call of `before`.
void answer_in_any_order(Generation& generation, const std::vector<std::string>& texts,
                         std::mt19937& random, std::size_t* most_open = nullptr,
                         const std::function<void()>& before = {}) {
  std::map<std::int64_t, std::size_t> given;
  std::vector<ExtendBatch> waiting;
  const auto add = [&](const std::vector<InferenceRequest>& more) {
    std::size_t open = 0;
    for (const InferenceRequest& request : more) {
      const auto& batch = std::get<ExtendBatch>(request);
      if (!batch.sequences.empty()) waiting.push_back(batch);
    }
    for (const ExtendBatch& batch : waiting) open += batch.sequences.size();
    if (most_open != nullptr) *most_open = std::max(*most_open, open);
  };
  add(generation.begin());
  while (!waiting.empty()) {
    const std::size_t at = random() % waiting.size();
    const ExtendBatch batch = waiting[at];
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
    InferenceAnswer chosen{batch.number, {}};
    for (const ExtendSequence& one : batch.sequences) {
      if (!one.choose) continue;
      const std::string& text = texts[static_cast<std::size_t>(one.sequence)];
      const std::size_t next = given[one.sequence]++;
      chosen.tokens.push_back(
          {one.sequence, next < text.size() ? static_cast<std::int64_t>(text[next]) : 0});
    }
    if (before) before();
    add(generation.on_answer(chosen));
  }
}

TEST(Generation, CompletesPromptsInTheirOrder) {
  const std::vector<std::string> texts = {"first", "", "the third one", "4", "fifth"};
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Bytes coder;
    Generation generation(prompts({{1}, {2}, {3}, {4}, {5}}), model_of(100), coder, limited(8),
                          {1 + seed % 2, 1 + seed % 5});
    std::vector<std::size_t> order;
    std::vector<Completion> done;
    generation.on_done([&](std::size_t prompt, const Completion& completion) {
      order.push_back(prompt);
      done.push_back(completion);
    });
    std::size_t most_open = 0;
    answer_in_any_order(generation, texts, random, &most_open);
    EXPECT_TRUE(generation.finished());
    EXPECT_LE(most_open, std::max(1 + seed % 2, 1 + seed % 5) + seed % 2);
    EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(done[i].text, texts[i].substr(0, 8));
      EXPECT_EQ(done[i].end,
                texts[i].size() >= 8 ? Completion::End::length : Completion::End::model);
    }
  }
}

TEST(Generation, ShownPiecesAreTheTextUpToTheFirstStop) {
  const std::string text = "caf\xC3\xA9 \xE2\x82\xAC abcabd STOP more";
  for (const std::vector<std::string>& stops : {std::vector<std::string>{},
                                                {"STOP"},
                                                {"abd", "STOP"},
                                                {"abx"},
                                                {"\xC3\xA9"},
                                                {"nowhere"}}) {
    Bytes coder;
    Generation generation(prompts({{1}}), model_of(100), coder, limited(64, stops), {});
    std::string shown;
    std::vector<std::string> pieces;
    generation.on_text([&](std::size_t, const std::string& more) {
      shown += more;
      pieces.push_back(more);
    });
    Completion last;
    generation.on_done([&](std::size_t, const Completion& completion) { last = completion; });
    std::mt19937 random(1);
    answer_in_any_order(generation, {text}, random);
    std::size_t stop = std::string::npos;
    for (const std::string& one : stops) stop = std::min(stop, text.find(one));
    EXPECT_EQ(shown, text.substr(0, stop));
    EXPECT_EQ(last.text, shown);
    EXPECT_EQ(last.end == Completion::End::stop, stop != std::string::npos);
    for (const std::string& piece : pieces) {
      EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xC0U, 0x80U) << "half a character";
    }
    EXPECT_GT(pieces.size(), 1U);
  }
}

TEST(Generation, StopsAtAControlTokenThatIsNamed) {
  for (const bool named : {true, false}) {
    Bytes coder;
    Generation generation(prompts({{1}}), model_of(100), coder,
                          limited(64, {named ? "<|end|>" : "nowhere"}), {});
    Completion last;
    generation.on_done([&](std::size_t, const Completion& completion) { last = completion; });
    std::mt19937 random(1);
    answer_in_any_order(generation, {"said\1more"}, random);
    EXPECT_EQ(last.text, named ? "said" : "saidmore");
    EXPECT_EQ(last.tokens, named ? 4 : 9);
    EXPECT_EQ(last.end, named ? Completion::End::stop : Completion::End::model);
  }
}

TEST(Generation, AsksForNoMoreRoomThanItNeeds) {
  Bytes coder;
  Generation generation(prompts({{1, 2, 3}, {1}}), model_of(10), coder, limited(8), {1, 2});
  const std::vector<InferenceRequest> begin = generation.begin();
  const auto& batch = std::get<ExtendBatch>(begin.at(0));
  EXPECT_EQ(batch.sequences.at(0).capacity, 10);  // the model's positions
  EXPECT_EQ(batch.sequences.at(1).capacity, 9);
}

TEST(Generation, BeginsPromptsAsTheirKeysAndValuesFitIntoMemory) {
  Bytes coder;
  models::ModelDescription model = model_of(100);
  models::LayerCost block;
  block.cached = {64, 2};  // 256 bytes a token, or 72 in 8 bits
  model.layers = {block, block};
  // Of 11, 9 and 10 tokens.
  const std::vector<Prompt> given = prompts({{1, 2, 3}, {1}, {1, 2}});
  const auto begun = [&](std::int64_t bits, std::int64_t bytes) {
    Generation generation(given, model, coder, limited(8), {1, 3, bits, bytes});
    const std::vector<InferenceRequest> begin = generation.begin();
    const std::size_t count = std::get<ExtendBatch>(begin.at(0)).sequences.size();
    EXPECT_EQ(generation.together(), count);
    EXPECT_EQ(std::get<ExtendBatch>(begin.at(0)).sequences.at(0).cache_bits, bits);
    return count;
  };
  EXPECT_EQ(begun(32, 2 * 256 * 30), 3U);
  EXPECT_EQ(begun(32, 2 * 256 * 30 - 1), 2U);
  EXPECT_EQ(begun(8, 2 * 72 * 30), 3U);
  EXPECT_EQ(begun(8, 2 * 72 * 30 - 1), 2U);
  EXPECT_EQ(begun(32, 1), 1U);  // one always does

  Generation generation(given, model, coder, limited(8), {1, 3, 32, 2 * 256 * 20});
  generation.begin();
  // The first has ended, and the third takes its place.
  const auto next = generation.on_answer(InferenceAnswer{0, {{0, 0}, {1, 5}}});
  const auto& batch = std::get<ExtendBatch>(next.at(0));
  ASSERT_EQ(batch.sequences.size(), 2U);
  EXPECT_EQ(batch.sequences[1].sequence, 2);
}

TEST(Generation, RefusesPromptsThatTheModelCannotTakeAndStrayAnswers) {
  Bytes coder;
  const auto refusal = [&coder](const std::vector<Prompt>& given) {
    return refusal_of<base::UserError>([&] { Generation(given, model_of(10), coder, {}, {}); });
  };
  EXPECT_EQ(refusal({{{1}, "a:1: the prompt"}, {{}, "a:3: the prompt"}}),
            "a:3: the prompt has 0 tokens; 1 to 9 leave room for an answer in this model");
  EXPECT_EQ(refusal({{std::vector<std::int32_t>(10, 1), "the prompt"}}),
            "the prompt has 10 tokens; 1 to 9 leave room for an answer in this model");
  EXPECT_EQ(refusal({{{255}, "a:1: the prompt"}, {{7, 256}, "a:2: the prompt"}}),
            "a:2: the prompt has the token 256 of the tokenizer, but the model has only tokens 0 "
            "to 255");
  Generation generation(prompts({{1}, {2}}), model_of(10), coder, {}, {});
  generation.begin();
  EXPECT_THROW(generation.on_answer(InferenceAnswer{0, {{1, 5}}}), base::MessageError);
  EXPECT_THROW(generation.on_answer(InferenceAnswer{1, {{0, 5}}}), base::MessageError);
  EXPECT_THROW(generation.on_answer(InferenceAnswer{0, {}}), base::MessageError);
  EXPECT_THROW(generation.on_answer(run::InferenceAnswer{0, {}, 1.0}), base::MessageError);
}

TEST(Generation, PromptsEnterByChunksAndLetTheOthersGoOn) {
  Bytes coder;
  const std::vector<std::int32_t> lengthy(600, 1);
  Generation generation(prompts({{1}, lengthy, lengthy}), model_of(1000), coder, limited(8),
                        {1, 3});
  std::vector<InferenceRequest> requests = generation.begin();
  std::vector<std::vector<std::size_t>> passes;
  for (int pass = 0; pass < 5; ++pass) {
    const auto& batch = std::get<ExtendBatch>(requests.at(0));
    InferenceAnswer chosen{0, {}};
    passes.emplace_back();
    for (const ExtendSequence& one : batch.sequences) {
      passes.back().push_back(one.tokens.size());
      if (one.choose) chosen.tokens.push_back({one.sequence, 7});
    }
    requests = generation.on_answer(chosen);
  }
  EXPECT_THAT(passes,
              testing::ElementsAre(testing::ElementsAre(1, 256), testing::ElementsAre(1, 256, 256),
                                   testing::ElementsAre(1, 88, 256), testing::ElementsAre(1, 1, 88),
                                   testing::ElementsAre(1, 1, 1)));
}

TEST(Generation, CancelledPromptsLeaveWithTheAnswerOfTheirPassOrNeverBegin) {
  Bytes coder;
  const std::vector<std::int32_t> lengthy(600, 1);
  Generation generation(prompts({{1}, lengthy, {3}, {4}}), model_of(1000), coder, limited(8),
                        {1, 2});
  std::vector<std::size_t> completed;
  const auto note = [&](std::size_t prompt, const Completion&) { completed.push_back(prompt); };
  generation.on_done(note);
  generation.on_over(note);
  generation.begin();
  generation.cancel(1);  // chooses no token in this pass
  generation.cancel(2);  // has not begun
  EXPECT_THAT(generation.poll(), testing::IsEmpty());
  auto requests = generation.on_answer(InferenceAnswer{0, {{0, 'a'}}});
  auto batch = std::get<ExtendBatch>(requests.at(0));
  EXPECT_THAT(batch.ended, testing::ElementsAre(1));
  ASSERT_EQ(batch.sequences.size(), 2U);
  EXPECT_EQ(batch.sequences[0].sequence, 0);
  EXPECT_EQ(batch.sequences[1].sequence, 3);
  generation.cancel(0);
  generation.cancel(0);
  generation.cancel(3);
  EXPECT_FALSE(generation.finished()) << "a pass is in flight";
  requests = generation.on_answer(InferenceAnswer{0, {{0, 'a'}, {3, 0}}});
  batch = std::get<ExtendBatch>(requests.at(0));
  EXPECT_THAT(batch.ended, testing::ElementsAre(0, 3));
  EXPECT_THAT(batch.sequences, testing::IsEmpty());
  EXPECT_TRUE(generation.finished());
  EXPECT_THAT(completed, testing::IsEmpty());
  // What comes later begins as if they had never been.
  generation.cancel(generation.add({{5}, "f:5"}, limited(8)));
  generation.cancel(3);
  generation.add({{6}, "f:6"}, limited(1));
  requests = generation.poll();
  EXPECT_EQ(std::get<ExtendBatch>(requests.at(0)).sequences.at(0).sequence, 5);
  EXPECT_THAT(generation.on_answer(InferenceAnswer{0, {{5, 'a'}}}), testing::SizeIs(1));
  EXPECT_THAT(completed, testing::ElementsAre(5, 5));
}

TEST(Generation, ACancelledPromptLeavesItsMemoryToTheNext) {
  Bytes coder;
  models::ModelDescription model = model_of(100);
  models::LayerCost block;
  block.cached = {64, 2};  // 256 bytes a token
  model.layers = {block};
  Generation generation(prompts({{1}, {2}, {3}}), model, coder, limited(8), {1, 2, 32, 256 * 10});
  ASSERT_EQ(std::get<ExtendBatch>(generation.begin().at(0)).sequences.size(), 1U);
  for (std::int64_t next = 1; next < 3; ++next) {
    generation.cancel(static_cast<std::size_t>(next) - 1);
    const auto requests = generation.on_answer(InferenceAnswer{0, {{next - 1, 'a'}}});
    const auto& batch = std::get<ExtendBatch>(requests.at(0));
    ASSERT_EQ(batch.sequences.size(), 1U);
    EXPECT_EQ(batch.sequences[0].sequence, next);
  }
}

TEST(Generation, CancelledPromptsChangeNoOtherCompletion) {
  const std::vector<std::string> texts = {"first", "", "the third one", "4", "fifth", "6", "7th"};
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    Bytes coder;
    Generation generation(prompts({{1}, {2}, {3}, {4}, {5}, {6}, {7}}), model_of(100), coder,
                          limited(8), {1 + seed % 3, 1 + seed % 5});
    std::map<std::size_t, std::string> over;
    std::set<std::size_t> cancelled;
    std::vector<std::size_t> done;
    generation.on_over([&](std::size_t prompt, const Completion& completion) {
      over.emplace(prompt, std::string(completion.answer.begin(), completion.answer.end()));
    });
    generation.on_done([&](std::size_t prompt, const Completion&) { done.push_back(prompt); });
    answer_in_any_order(generation, texts, random, nullptr, [&] {
      const std::size_t prompt = random() % (2 * texts.size());
      if (prompt >= texts.size()) return;
      generation.cancel(prompt);
      if (!over.contains(prompt)) cancelled.insert(prompt);
    });
    EXPECT_TRUE(generation.finished()) << seed;
    EXPECT_TRUE(std::ranges::is_sorted(done)) << seed;
    EXPECT_EQ(done.size(), over.size()) << seed;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      ASSERT_NE(over.contains(i), cancelled.contains(i)) << seed;
      if (cancelled.contains(i)) continue;
      EXPECT_EQ(over.at(i), texts[i].substr(0, 8)) << seed;
    }
  }
}

TEST(CertainLength, HoldsBackWhatMayChange) {
  EXPECT_EQ(certain_length("abc", {}), 3U);
  EXPECT_EQ(certain_length("ab\xC3", {}), 2U);
  EXPECT_EQ(certain_length("ab\xE2\x82", {}), 2U);
  EXPECT_EQ(certain_length("ab\xC3\xA9", {}), 4U);
  EXPECT_EQ(certain_length("ab\xEF\xBF\xBD\xEF\xBF\xBD", {}), 2U);
  EXPECT_EQ(certain_length("one ST", {"STOP", "e STA"}), 2U);
  EXPECT_EQ(certain_length("", {"x"}), 0U);
}

}  // namespace
}  // namespace strait::compute
