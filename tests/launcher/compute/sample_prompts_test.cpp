#include "launcher/compute/sample_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/store/store_error.h"
#include "tests/scratch_directory.h"

namespace strait::compute {
namespace {

using testing::ElementsAre;

class SamplePrompts : public testing::Test {
 protected:
  // A recipe that trains on these lines.
  recipe::Recipe of(const std::string& lines, const std::string& name = "train.jsonl") {
    ScratchDirectory::write(scratch_ / name, lines);
    recipe::Recipe recipe;
    recipe.data.train = {{(scratch_ / name).string()}};
    return recipe;
  }
  static std::string chat(const std::string& asked, const std::string& answered) {
    return R"({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": ")" +
           asked + R"("}, {"role": "assistant", "content": ")" + answered +
           R"("}, {"role": "user", "content": "more"}]})" + "\n";
  }

  ScratchDirectory scratch_;
};

TEST_F(SamplePrompts, OfAChatAreItsMessagesBeforeTheFirstAnswer) {
  const auto prompts = training_prompts(of(chat("what?", "this")), 9);
  ASSERT_EQ(prompts.size(), 1U);
  EXPECT_EQ(prompts[0].text, "what?");
  EXPECT_EQ(prompts[0].answer, "this");
  ASSERT_TRUE(prompts[0].chat);
  EXPECT_EQ(
      prompts[0].chat->chat,
      R"({"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"what?"}]})");
  EXPECT_EQ(prompt_flags(prompts), "--chat --prompt 'what?'");
  EXPECT_TRUE(trains_on_chats(of(chat("what?", "this"))));
}

TEST_F(SamplePrompts, OfPairsAndTextsAreWhatTheModelContinues) {
  const recipe::Recipe pairs = of(R"({"prompt": "5 March -> ", "completion": "03-05"})");
  EXPECT_EQ(prompt_flags(training_prompts(pairs, 1)), "--prompt '5 March -> '");
  EXPECT_FALSE(trains_on_chats(pairs));
  const auto texts =
      training_prompts(of(R"({"text": "\n once upon a time there was a king\nand"})"), 1);
  EXPECT_EQ(prompt_flags(texts), "--prompt 'once upon a time there was'");
  EXPECT_EQ(texts[0].answer, "");
  EXPECT_EQ(prompt_flags(training_prompts(of("a text", "train.txt"), 1)), "--prompt \"...\"");
}

TEST_F(SamplePrompts, AreOfTheDataThatAreHeldOut) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += chat(std::to_string(i), "x");
  recipe::Recipe recipe = of(lines);
  EXPECT_TRUE(held_out_prompts(recipe, 9).empty());
  recipe.data.hold_out = 0.3;
  const auto held = held_out_prompts(recipe, 100);
  EXPECT_GT(held.size(), 2U);
  EXPECT_LT(held.size(), 30U);
  for (const SamplePrompt& prompt : held) {
    const data::Record record = data::parse_record(chat(prompt.text, "x"), "f:1");
    EXPECT_TRUE(data::is_held_out(record, 0.3, static_cast<std::uint64_t>(recipe.seed)));
  }
  EXPECT_EQ(held_out_prompts(recipe, 2).size(), 2U);
  recipe.data.eval = of(chat("eval?", "y"), "eval.jsonl").data.train;
  const auto evaluated = held_out_prompts(recipe, 9);
  ASSERT_EQ(evaluated.size(), 1U);
  EXPECT_EQ(evaluated[0].text, "eval?");
}

TEST_F(SamplePrompts, OfRatedAnswersAreThoseThatAModelShouldGive) {
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += fmt::format(R"({{"prompt": "{}?", "completion": "{}", "label": {}}})", i,
                         i % 2 == 0 ? "right" : "wrong", i % 2 == 0) +
             "\n";
  }
  recipe::Recipe recipe = of(lines);
  recipe.train.preference.loss = recipe::PreferenceKind::kto;
  const auto expect_right = [&] {
    const auto prompts = held_out_prompts(recipe, 6);
    EXPECT_EQ(prompts.size(), 6U);
    for (const SamplePrompt& prompt : prompts) EXPECT_EQ(prompt.answer, "right") << prompt.text;
  };
  recipe.data.hold_out = 0.9;
  expect_right();
  recipe.data.eval = recipe.data.train;
  expect_right();
  // Of such data alone a command is still that of a text.
  recipe.data.train = of(R"({"prompt": "a?", "completion": "x", "label": false})"
                         "\n"
                         R"({"prompt": "b?", "completion": "y", "label": false})",
                         "wrong.jsonl")
                          .data.train;
  EXPECT_EQ(prompt_flags(training_prompts(recipe, 1)), "--prompt 'a?'");
}

TEST_F(SamplePrompts, OfACommandAreOnOneLine) {
  const std::string text(300, 'a');
  const std::vector<SamplePrompt> prompts = {
      {text, "", {}}, {"two\nlines", "", {}}, {"it's", "", {}}};
  EXPECT_EQ(prompt_flags(prompts), "--prompt 'it'\\''s'");
  EXPECT_EQ(prompt_flags({prompts[0]}), "--prompt " + text.substr(0, 100));
  EXPECT_EQ(prompt_flags({prompts[1]}), "--prompt two");
}

TEST_F(SamplePrompts, AtTheEndOfARunAreOneLineEach) {
  const std::string page = "Summarise:\n" + std::string(3000, 'a');
  const std::string cut = "Summarise: " + std::string(49, 'a') + "…";
  EXPECT_EQ(sample_line({page, "x", {}}, page, false), "  wrong  " + cut + " " + cut);
  EXPECT_EQ(sample_line({page, "x", data::Record()}, "b\n", false), "  " + cut + "  >  b");
  EXPECT_EQ(sample_line({"3 May\n", "3.5.", {}}, "3.5.", true), "  right  3 May 3.5.");
}

TEST_F(SamplePrompts, OfFilesThatAreGoneAreNone) {
  recipe::Recipe recipe;
  recipe.data.train = {{"nowhere.jsonl"}};
  EXPECT_FALSE(trains_on_chats(recipe));
  EXPECT_THROW(training_prompts(recipe, 1), store::StoreError);
}

}  // namespace
}  // namespace strait::compute
