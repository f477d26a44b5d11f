#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "framework/data/data_preparation.h"
#include "framework/data/record_reader.h"
#include "tests/framework/data/no_tokenizers.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/refusal_of.h"

namespace strait::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> texts_of(const Record& record) {
  std::vector<std::string> texts;
  for (const Piece& piece : record.pieces) {
    texts.push_back(piece.is_target ? "[[" + piece.text + "]]" : piece.text);
  }
  return texts;
}

void expect_answers(const std::string& line, const std::vector<std::string>& prompt,
                    const std::string& chosen, const std::string& rejected) {
  const std::array<Answer, 2> both = parse_preference(line, "f:1");
  for (std::size_t i = 0; i < both.size(); ++i) {
    const Record record = answer_record(both[i], both[i]);
    std::vector<std::string> expected = prompt;
    expected.push_back("[[" + (i == 0 ? chosen : rejected) + "]]");
    EXPECT_EQ(texts_of(record), expected) << line;
    EXPECT_TRUE(record.whole);
    EXPECT_EQ(record.undesirable, i == 1);
    EXPECT_EQ(record.origin, "f:1");
  }
}

TEST(PreferenceRecord, HasTheFormsOfTrl) {
  expect_answers(R"({"prompt":"2+2=","chosen":"4","rejected":"5","score":1})", {"2+2="}, "4", "5");
  expect_answers(R"({"chosen":"The sky is blue.","rejected":"The sky is red."})", {"The sky is"},
                 " blue.", " red.");
  expect_answers(R"({"prompt":null,"chosen":"a b","rejected":"a c"})", {"a"}, " b", " c");
  // The first difference is inside of a character.
  expect_answers(R"({"chosen":"a\u00e4","rejected":"a\u00e5"})", {"a"}, "ä", "å");
  const std::vector<std::string> asked = {"user: ", "hi\n", "assistant: "};
  const std::string said = R"({"role":"user","content":"hi"})";
  const auto answer = [](const std::string& text) {
    return R"({"role":"assistant","content":")" + text + "\"}";
  };
  expect_answers(R"({"prompt":[)" + said + R"(],"chosen":[)" + answer("yes") + R"(],"rejected":[)" +
                     answer("no") + "]}",
                 asked, "yes\n", "no\n");
  const std::string lists = R"("chosen":[)" + said + "," + answer("yes") + R"(],"rejected":[)" +
                            said + "," + answer("no") + "]}";
  expect_answers("{" + lists, asked, "yes\n", "no\n");
  expect_answers(R"({"prompt":"hi",)" + lists, asked, "yes\n", "no\n");
  for (const char* none : {"null", "\"\""}) {
    expect_answers(std::string(R"({"prompt":)") + none + R"(,"chosen":[)" + answer("yes") +
                       R"(],"rejected":[)" + answer("no") + "]}",
                   {"assistant: "}, "yes\n", "no\n");
  }
}

TEST(PreferenceRecord, LearnsOnlyTheAnswerOfALongerChat) {
  const std::string begin = R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
                            R"({"role":"user","content":"c"},{"role":"assistant","content":)";
  const auto [chosen, rejected] = parse_preference(
      R"({"chosen":)" + begin + R"("d"}],"rejected":)" + begin + R"("e"}]})", "f:1");
  EXPECT_EQ(texts_of(answer_record(rejected, rejected)),
            (std::vector<std::string>{"user: ", "a\n", "assistant: ", "b\n", "user: ", "c\n",
                                      "assistant: ", "[[e\n]]"}));
}

TEST(PreferenceRecord, RefusesWhatIsNoneWithLine) {
  const auto expect_refused = [](const std::string& line, const std::string& words) {
    const std::string refusal = refusal_of<store::StoreError>([&] {
      for (const Answer& one : parse_preference(line, "pairs.jsonl:17")) answer_record(one, one);
    });
    EXPECT_THAT(refusal, testing::StartsWith("pairs.jsonl:17: ")) << line;
    EXPECT_THAT(refusal, testing::HasSubstr(words)) << line;
  };
  const std::string needed = "\"chosen\" and \"rejected\", two texts or two lists of messages";
  expect_refused(R"({"text":"a"})", needed);
  expect_refused(R"({"chosen":"a"})", needed);
  expect_refused(R"({"chosen":"a","rejected":[]})", needed);
  expect_refused(R"([1])", needed);
  expect_refused(R"({"chosen":)", "not JSON");
  expect_refused(R"({"prompt":7,"chosen":"a","rejected":"b"})",
                 "\"prompt\" is a number where a string is expected");
  expect_refused(R"({"chosen":[],"rejected":[]})", "\"chosen\" has 0 messages after the prompt");
  expect_refused(R"({"chosen":[{"role":"user","content":"a"}],)"
                 R"("rejected":[{"role":"assistant","content":"b"}]})",
                 "\"chosen\" has 1 message after the prompt, and one of the role \"assistant\"");
}

// Else the record would train, and without its prompt.
TEST(PreferenceRecord, RefusesATextPromptThatListsOfMessagesDoNotRepeat) {
  const std::string system = R"({"role":"system","content":"be brief"},)";
  for (const std::string& begin : {std::string(), system}) {
    const std::string lists = R"("chosen":[)" + begin +
                              R"({"role":"assistant","content":"yes"}],)" + R"("rejected":[)" +
                              begin + R"({"role":"assistant","content":"no"}]})";
    for (const char* prompt : {"\"Q\"", R"({"role":"user","content":"Q"})", "7"}) {
      const std::string line = R"({"prompt":)" + std::string(prompt) + "," + lists;
      for (const bool rated : {false, true}) {
        const std::string refusal = refusal_of<store::StoreError>([&] {
          if (rated) parse_rated(line, "pairs.jsonl:17");
          if (!rated) parse_preference(line, "pairs.jsonl:17");
        });
        EXPECT_THAT(refusal, testing::StartsWith("pairs.jsonl:17: \"prompt\" is not a list"))
            << line;
        EXPECT_THAT(refusal,
                    testing::HasSubstr("write it as a list, too: \"prompt\": [{\"role\": "));
      }
    }
  }
}

class PreferenceRows : public testing::TestWithParam<Packing> {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "preference_rows";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options_.rows = {.row = 24, .too_long = TooLong::drop, .packing = GetParam()};
    options_.preferences = true;
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  PreparedSplit read(const std::string& file) const {
    return read_split({{file}}, options_, NoTokenizers());
  }
  std::string refusal(const std::string& file) const {
    return refusal_of<store::StoreError>([&] { read(file); });
  }

  fs::path folder_;
  DataOptions options_;
};

// Both documents of the pairs of all rows, in bytes.
std::multiset<std::pair<std::string, std::string>> pairs_of(const TokenFile& tokens) {
  std::multiset<std::pair<std::string, std::string>> pairs;
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    std::vector<std::string> texts;
    auto token = tokens.tokens(store::SampleId{row}).begin();
    for (const std::int64_t length : tokens.document_lengths(store::SampleId{row})) {
      texts.emplace_back(token, token + length - 1);
      token += length;
    }
    EXPECT_EQ(texts.size() % 2, 0U);
    for (std::size_t i = 0; i + 1 < texts.size(); i += 2) pairs.emplace(texts[i], texts[i + 1]);
  }
  return pairs;
}

TEST_P(PreferenceRows, KeepBothAnswersTogether) {
  std::string lines;
  std::multiset<std::pair<std::string, std::string>> expected;
  for (int i = 0; i < 40; ++i) {
    const std::string prompt = std::to_string(i) + "?";
    const std::string chosen(static_cast<std::size_t>(1 + i % 5), 'a');
    const std::string rejected(static_cast<std::size_t>(1 + i % 3), 'b');
    lines += R"({"prompt":")" + prompt + R"(","chosen":")" + chosen + R"(","rejected":")" +
             rejected + "\"}\n";
    expected.emplace(prompt + chosen, prompt + rejected);
  }
  // Too long together, though neither is alone.
  lines += R"({"prompt":"x","chosen":"123456789012","rejected":"123456789012"})";
  const PreparedSplit all = read(write("pairs.jsonl", lines));
  EXPECT_EQ(pairs_of(*all.training.tokens), expected);
  EXPECT_EQ(all.training.tokens->rows() < 40, GetParam() != Packing::single);
  EXPECT_THAT(all.training.notes.front(), testing::HasSubstr("1 dropped"));
  options_.hold_out = 0.3;
  const PreparedSplit split = read((folder_ / "pairs.jsonl").string());
  auto both = pairs_of(*split.training.tokens);
  for (const auto& pair : pairs_of(*split.held_out->tokens)) both.insert(pair);
  EXPECT_EQ(both, expected);
}

TEST_P(PreferenceRows, AreNotTakenForOthers) {
  const std::string lines = write("pairs.jsonl", R"({"prompt":"a","chosen":"b","rejected":"c"})");
  const std::string file = (folder_ / "pairs.safetensors").string();
  place_data(read(lines).training, file);
  EXPECT_EQ(pairs_of(*read(file).training.tokens).size(), 1U);
  EXPECT_THAT(refusal(write("a.txt", "text")), testing::HasSubstr("is one text"));
  EXPECT_THAT(refusal(write("a.jsonl", R"({"text":"b"})")), testing::HasSubstr("a.jsonl:1: "));
  const std::string odd = (folder_ / "odd.safetensors").string();
  const TokenRows single{24, std::vector<std::int32_t>(24, 1), std::vector<std::uint8_t>(24, 1),
                         std::vector<std::int32_t>(24, 0)};
  write_token_file(odd, TokenFile(single, "odd"), {{"documents", "preferences"}});
  EXPECT_THAT(refusal(odd), testing::HasSubstr("row 0 has 1 documents, 1 of them with targets"));
  options_.rows.too_long = TooLong::split;
  EXPECT_THAT(refusal(lines), testing::HasSubstr("data.too_long cuts records"));
  options_ = {.rows = {.row = 24}};
  EXPECT_THAT(refusal(file), testing::HasSubstr("train.preference.loss is missing"));
  EXPECT_THAT(refusal(lines), testing::HasSubstr("pairs.jsonl:1: \"chosen\" and \"rejected\""));
}

// Prompt, answer and label of each record, and the answer to another prompt after the same prompt.
TEST_P(PreferenceRows, RatedAnswersComeWithOnesToOtherPrompts) {
  options_.preferences = options_.rated = true;
  const std::string file = write("rated.jsonl", R"({"prompt":"a?","completion":"1","label":true})"
                                                "\n"
                                                R"({"prompt":"a?","completion":"2","label":0})"
                                                "\n"
                                                R"({"prompt":"b?","chosen":"3","rejected":"4"})");
  const PreparedSplit split = read(file);
  const TokenFile& tokens = *split.training.tokens;
  EXPECT_EQ(pairs_of(tokens), (std::multiset<std::pair<std::string, std::string>>{
                                  {"a?1", "a?3"}, {"a?2", "a?3"}, {"b?3", "b?2"}, {"b?4", "b?2"}}));
  std::map<char, int> marks;  // by answer
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    const store::SampleId sample{row};
    const auto documents = tokens.documents(sample);
    for (const std::int64_t place : tokens.targets(sample)) {
      const auto at = static_cast<std::size_t>(place);
      if (documents[at] % 2 == 0 && tokens.tokens(sample)[at] != ByteTokenizer::kEnd) {
        marks[static_cast<char>(tokens.tokens(sample)[at])] = tokens.loss_mask(sample)[at];
      }
    }
  }
  EXPECT_EQ(marks, (std::map<char, int>{{'1', 1}, {'2', 2}, {'3', 1}, {'4', 2}}));
  const std::string made = (folder_ / "rated.safetensors").string();
  place_data(split.training, made);
  EXPECT_EQ(pairs_of(*read(made).training.tokens), pairs_of(tokens));
  options_.rated = false;
  EXPECT_THAT(refusal(made), testing::HasSubstr("has no preferences, which"));
}

TEST_P(PreferenceRows, RatedAnswersOfAnotherFormAreRefused) {
  options_.preferences = options_.rated = true;
  EXPECT_THAT(refusal(write("b.jsonl", R"({"prompt":"a","completion":"b"})")),
              testing::HasSubstr("b.jsonl:1: a rated answer is an object with"));
  EXPECT_THAT(refusal(write("c.jsonl", R"({"prompt":"a","completion":"b","label":"good"})")),
              testing::HasSubstr("a \"label\", true or false"));
  EXPECT_THAT(refusal(write("d.jsonl", R"({"prompt":"a","completion":"b","label":true})")),
              testing::HasSubstr("all records have the same prompt"));
  EXPECT_THAT(
      refusal(write("e.jsonl", R"({"prompt":"a","completion":"b","label":true})"
                               "\n"
                               R"({"prompt":[],"completion":[],"label":true})")),
      testing::HasSubstr("e.jsonl:2: the records before it are texts, and this one is not"));
}

INSTANTIATE_TEST_SUITE_P(AllPackings, PreferenceRows,
                         testing::Values(Packing::first_fit, Packing::decreasing, Packing::single));

}  // namespace
}  // namespace strait::data
