#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "framework/data/chat_record.h"
#include "framework/data/data_form.h"
#include "framework/data/record_reader.h"
#include "framework/data/tokenizer.h"
#include "tests/framework/data/no_tokenizers.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/refusal_of.h"
#include "tests/scratch_directory.h"

namespace strait::data {
namespace {

std::vector<Record> read_all(const std::filesystem::path& path) {
  std::vector<Record> records;
  RecordReader reader(path, NoTokenizers());
  while (std::optional<Record> record = reader.next()) records.push_back(*record);
  return records;
}

void expect_refused_record(const std::string& line, const std::vector<std::string>& words) {
  SCOPED_TRACE(line.substr(0, 100));
  std::vector<std::string> all = words;
  all.emplace_back("train.jsonl:17: ");
  expect_store_error(store::StoreError::Kind::bad_input, all,
                     [&] { parse_record(line, "train.jsonl:17"); });
}

TEST(Record, TextIsATargetThroughoutAndMayBeCut) {
  const Record record = parse_record(R"({"text":"héllo","id":7})", "f:1");
  EXPECT_EQ(record.pieces, (std::vector<Piece>{{"héllo", true}}));
  EXPECT_FALSE(record.whole);
  EXPECT_EQ(record.origin, "f:1");
}

TEST(Record, OnlyTheCompletionOfAPromptIsATarget) {
  const Record record = parse_record(R"({"completion":"4","prompt":"2+2="})", "f:1");
  EXPECT_EQ(record.pieces, (std::vector<Piece>{{"2+2=", false}, {"4", true}}));
  EXPECT_TRUE(record.whole);
}

TEST(Record, OnlyWhatTheAssistantSaysIsATarget) {
  const Record record = parse_record(R"({"messages":[{"role":"user","content":"hi"},)"
                                     R"({"role":"assistant","content":"hello"}]})",
                                     "f:1");
  EXPECT_EQ(record.pieces,
            (std::vector<Piece>{
                {"user: ", false}, {"hi\n", false}, {"assistant: ", false}, {"hello\n", true}}));
  EXPECT_TRUE(record.whole);
}

TEST(Record, SaysWhatIsWrongAndWhatIsAllowed) {
  expect_refused_record("{\"text\": nope}", {"a line that is not JSON", "column 11"});
  expect_refused_record("\"text\"", {"a record is an object with \"text\""});
  expect_refused_record("{}", {"\"prompt\" and \"completion\"", "\"messages\"", "has no key"});
  expect_refused_record(R"({"text":null})", {"has no key with a value"});
  expect_refused_record(R"({"text":"a","prompt":"b"})", {"more than one"});
  expect_refused_record(R"({"prompt":"a"})", {"there is no \"completion\""});
  expect_refused_record(R"({"text":7})", {"\"text\" is a number where a string is expected"});
  expect_refused_record(R"({"text":"a","text":"b"})", {"\"text\" appears twice"});
  expect_refused_record(R"({"messages":[]})", {"not a list"});
  expect_refused_record(R"({"messages":[7]})", {"message 1: it is not an object"});
  expect_refused_record(R"({"messages":[{"role":"user"}]})",
                        {"message 1: there is no \"content\""});
  expect_refused_record(R"({"messages":[{"role":"assistent","content":""}]})",
                        {"no message has the role \"assistant\" (there are: \"assistent\")"});
  expect_refused_record(R"({"messages":[{"role":"user","content":"hi"}]})", {"nothing to learn"});
}

TEST(Record, APromptIsCheckedAsARecordButNeedsNoAnswer) {
  const auto prompt = [](const std::string& chat) {
    return prompt_record(nlohmann::json::parse(chat), chat, "train.jsonl:17");
  };
  const std::string asked = R"({"messages":[{"role":"user","content":"hi"}]})";
  const Record record = prompt(asked);
  EXPECT_EQ(record.pieces, (std::vector<Piece>{{"user: ", false}, {"hi\n", false}}));
  EXPECT_EQ(record.chat, asked);
  for (const char* wrong :
       {R"({"messages":[]})", R"({"messages":7})", R"({"messages":[7]})",
        R"({"messages":[{"role":"user","content":5}]})", R"({"messages":[{"content":"hi"}]})"}) {
    expect_refused_record(wrong, {refusal_of<store::StoreError>([&] { prompt(wrong); })});
  }
}

TEST(Record, MayBeATextOfManyMebibytes) {
  const std::string text(5 << 20, 'a');
  EXPECT_EQ(parse_record(R"({"text":")" + text + "\"}", "books.jsonl:1").pieces.at(0).text, text);
}

TEST(Record, RefusesBombs) {
  expect_refused_record(R"({"text":")" + std::string((16 << 20) + 1, 'a') + "\"}",
                        {"a string is longer than 16777216 bytes"});
  expect_refused_record(R"({"text":"","x":)" + std::string(100'000, '['),
                        {"nested deeper than 64"});
  expect_refused_record("{\"text\":\"\xc3\x28\"}", {"a line that is not JSON"});
  expect_refused_record(R"({"text":"","x":1e999})", {"a line that is not JSON"});
}

TEST(RecordReader, ReadsLinesAndPassesOverBlankOnes) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "a.jsonl",
                          "\xef\xbb\xbf{\"text\":\"one\"}\r\n\n  \n{\"text\":\"two\"}");
  const std::vector<Record> records = read_all(folder / "a.jsonl");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].pieces[0].text, "one");
  EXPECT_EQ(records[1].pieces[0].text, "two");
  EXPECT_EQ(records[1].origin, (folder / "a.jsonl").string() + ":4");
}

TEST(RecordReader, ReadsManyLinesAcrossItsPieces) {
  const ScratchDirectory folder;
  std::string bytes;
  for (int i = 0; i < 3000; ++i) {
    bytes += "{\"text\":\"" + std::to_string(i) + std::string(i % 997, 'x') + "\"}\n";
  }
  ASSERT_GT(bytes.size(), std::size_t{1} << 20);
  ScratchDirectory::write(folder / "a.ndjson", bytes);
  const std::vector<Record> records = read_all(folder / "a.ndjson");
  ASSERT_EQ(records.size(), 3000U);
  for (int i = 0; i < 3000; ++i) {
    const std::string wanted = std::to_string(i) + std::string(i % 997, 'x');
    ASSERT_EQ(records[static_cast<std::size_t>(i)].pieces[0].text, wanted);
  }
}

TEST(RecordReader, TakesAnyOtherFileAsOneText) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "book.txt", "line one\nline two\n");
  const std::vector<Record> records = read_all(folder / "book.txt");
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].pieces, (std::vector<Piece>{{"line one\nline two\n", true}}));
  EXPECT_FALSE(records[0].whole);
}

TEST(RecordReader, PassesOverTheByteOrderMarkOfATextAndNoOther) {
  const ScratchDirectory folder;
  const std::string mark = "\xef\xbb\xbf";
  ScratchDirectory::write(folder / "a.txt", mark + "one\n" + mark + "two\n");
  const std::vector<Record> records = read_all(folder / "a.txt");
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].pieces[0].text, "one\n" + mark + "two\n");
  EXPECT_TRUE(records[0].first);
  EXPECT_TRUE(records[0].last);
  ScratchDirectory::write(folder / "none.txt", mark);
  expect_store_error(store::StoreError::Kind::bad_input, {"none.txt is empty"},
                     [&] { read_all(folder / "none.txt"); });
  // Places are those in the file.
  ScratchDirectory::write(folder / "b.txt", mark + "ab\xff");
  expect_store_error(store::StoreError::Kind::bad_input, {"byte 6"},
                     [&] { read_all(folder / "b.txt"); });
}

TEST(RecordReader, ReadsALongTextInPartsThatEndAtLines) {
  const ScratchDirectory folder;
  std::string text;
  for (int i = 0; text.size() < 3 * kPartBytes; ++i) text += std::to_string(i) + " é\n";
  ScratchDirectory::write(folder / "a.txt", text);
  const std::vector<Record> parts = read_all(folder / "a.txt");
  ASSERT_GT(parts.size(), 3U);
  std::string joined;
  for (const Record& part : parts) {
    EXPECT_LE(part.pieces[0].text.size(), kPartBytes);
    EXPECT_EQ(part.pieces[0].text.back(), '\n');
    EXPECT_EQ(part.first, joined.empty());
    joined += part.pieces[0].text;
    EXPECT_EQ(part.last, joined.size() == text.size());
  }
  EXPECT_EQ(joined, text);
  // Without an end of line a part ends between two characters.
  std::string line;
  while (line.size() <= kPartBytes) line += "€";
  ScratchDirectory::write(folder / "b.txt", line);
  EXPECT_EQ(read_all(folder / "b.txt")[0].pieces[0].text.size(), kPartBytes / 3 * 3);
  text[2 * kPartBytes] = '\0';
  ScratchDirectory::write(folder / "c.txt", text);
  expect_store_error(store::StoreError::Kind::bad_input, {"byte 2097153"},
                     [&] { read_all(folder / "c.txt"); });
}

TEST(Record, HoldsOutAShareByContentAndSeed) {
  const auto record = [](int i) {
    return parse_record(R"({"prompt": "a)" + std::to_string(i) + R"(", "completion": "b"})", "f:1");
  };
  int held = 0;
  int other = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool out = is_held_out(record(i), 0.05, 7);
    held += out ? 1 : 0;
    other += out != is_held_out(record(i), 0.05, 8) ? 1 : 0;
    // Of a larger share it is a part, so a share can grow; wherever the record is.
    Record elsewhere = record(i);
    elsewhere.origin = "g:9";
    EXPECT_LE(out, is_held_out(elsewhere, 0.06, 7));
    EXPECT_EQ(out, is_held_out(elsewhere, 0.05, 7));
  }
  EXPECT_NEAR(held, 1000, 100);  // three standard deviations
  EXPECT_GT(other, 1500);
  const Record moved{.origin = "", .pieces = {{"a", false}, {"bc", true}}};
  const Record same_text{.origin = "", .pieces = {{"ab", false}, {"c", true}}};
  int differ = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    differ += is_held_out(moved, 0.5, seed) != is_held_out(same_text, 0.5, seed) ? 1 : 0;
  }
  EXPECT_GT(differ, 20);
}

// For which of many seeds a record is held out.
std::string sides(const std::string& line) {
  const Record record = parse_record(line, "f:1");
  std::string found;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    found += is_held_out(record, 0.5, seed) ? '1' : '0';
  }
  return found;
}

TEST(Record, HoldsOutEqualChatsTogetherInWhateverForm) {
  const std::string wanted = sides(R"({"messages":[{"role":"user","content":"q"},)"
                                   R"({"role":"assistant","content":"a"}]})");
  for (const char* same :
       {R"({"id":7,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})",
        "{\"messages\": [{\"content\": \"q\", \"role\": \"user\"},\t{\"role\":\"assistant\","
        "\"content\":\"\\u0061\"}] }\r",
        R"({"messages":[{"role":"user","content":[{"type":"text","text":"q"}],"id":"x"},)"
        R"({"role":"assistant","content":"a","tool_calls":null}],"tools":"[]"})",
        R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}],"id":1})",
        R"({"instruction":"q","input":"","output":"a"})"}) {
    EXPECT_EQ(sides(same), wanted) << same;
  }
  EXPECT_EQ(sides(R"({"messages":[{"role":"assistant","content":"a"}],"system":"s"})"),
            sides(R"({"messages":[{"role":"system","content":"s"},)"
                  R"({"role":"assistant","content":"a"}]})"));
  const auto answered = [](const std::string& more, const std::string& tools) {
    return sides(R"({"messages":[{"role":"assistant","content":"a")" + more + R"(}],"tools":)" +
                 tools + "}");
  };
  const std::string bare = answered("", "[]");
  const std::string tools = answered("", R"([{"a":1,"b":2}])");
  EXPECT_EQ(tools, answered("", R"([ {"b":2, "a":1}])"));
  EXPECT_EQ(tools, answered("", R"("[{\"b\":2,\"a\":1}]")"));
  const std::string calls = answered(R"(,"tool_calls":[{"name":"f"}])", "null");
  EXPECT_NE(tools, bare);
  EXPECT_NE(calls, bare);
  EXPECT_NE(calls, tools);
  EXPECT_NE(calls, answered(R"(,"tool_calls":[{"name":"g"}])", "null"));
}

TEST(RecordReader, RefusesFilesWithNothingInThemAndNamesTheLine) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "empty.jsonl", "");
  ScratchDirectory::write(folder / "blank.jsonl", "\n \n");
  ScratchDirectory::write(folder / "bad.jsonl", "{\"text\":\"\"}\nnot json\n");
  expect_store_error(store::StoreError::Kind::bad_input, {"empty.jsonl is empty"},
                     [&] { read_all(folder / "empty.jsonl"); });
  expect_store_error(store::StoreError::Kind::bad_input, {"blank.jsonl holds no record"},
                     [&] { read_all(folder / "blank.jsonl"); });
  expect_store_error(store::StoreError::Kind::bad_input, {"bad.jsonl:2: a line that is not JSON"},
                     [&] { read_all(folder / "bad.jsonl"); });
}

TEST(RecordReader, RefusesALineWithoutEndBeforeItIsParsed) {
  const ScratchDirectory folder;
  std::string bytes = "{\"text\":\"\"}\n";
  bytes.resize(17 << 20, ' ');
  ScratchDirectory::write(folder / "a.jsonl", bytes);
  expect_store_error(store::StoreError::Kind::bad_input,
                     {"a.jsonl:2: the line is longer than", "LC_ALL=C awk"},
                     [&] { read_all(folder / "a.jsonl"); });
  ScratchDirectory::write(folder / "b.jsonl", "{\"text\":\"" + std::string(17 << 20, 'a'));
  expect_store_error(store::StoreError::Kind::bad_input,
                     {"b.jsonl:1: the line is longer than", "cut the texts", "b-cut.jsonl"},
                     [&] { read_all(folder / "b.jsonl"); });
}

TEST(Record, ReadsShareGptAndAlpacaAsMessages) {
  const std::vector<Piece> wanted = {
      {"user: ", false}, {"hi\n", false}, {"assistant: ", false}, {"hello\n", true}};
  const Record shared = parse_record(
      R"({"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"hello"}]})", "f:1");
  EXPECT_EQ(shared.pieces, wanted);
  EXPECT_EQ(
      shared.chat,
      R"({"messages":[{"content":"hi","role":"user"},{"content":"hello","role":"assistant"}]})");
  const Record asked = parse_record(R"({"instruction":"hi","input":"","output":"hello"})", "f:1");
  EXPECT_EQ(asked.pieces, wanted);
  const Record more =
      parse_record(R"({"instruction":"a","input":"b","output":"c","system":"s"})", "f:1");
  ASSERT_EQ(more.pieces.size(), 6U);
  EXPECT_EQ(more.pieces[1].text, "s\n");
  EXPECT_EQ(more.pieces[3].text, "a\n\nb\n");
  expect_refused_record(R"({"conversations":[{"from":"martian","value":"hi"}]})",
                        {"turn 1", "\"martian\"", "human, gpt"});
}

TEST(Record, TakesTheFormsOfOtherToolsForMessages) {
  const std::string user = R"({"role":"user","content":"hi"})";
  const std::string answer = R"({"role":"assistant","content":"hello"})";
  const std::string both = "[" + user + "," + answer + "]";
  const std::vector<Piece> wanted = {
      {"user: ", false}, {"hi\n", false}, {"assistant: ", false}, {"hello\n", true}};
  for (const std::string& line :
       {R"({"text":null,"prompt":null,"messages":)" + both + "}",
        R"({"prompt":"hi","prompt_id":"7","messages":)" + both + "}",
        R"({"prompt":[)" + user + R"(],"completion":[)" + answer + "]}",
        R"({"messages":null,"conversations":)" + both + "}",
        std::string(R"({"instruction":"hi","input":null,"output":"hello"})"),
        std::string(R"({"instruction":"hi","output":"hello"})")}) {
    EXPECT_EQ(parse_record(line, "f:1").pieces, wanted) << line;
    EXPECT_EQ(sides(line), sides(R"({"messages":)" + both + "}")) << line;
  }
  expect_refused_record(R"({"messages":)" + both + R"(,"completion":"a"})", {"more than one"});
}

TEST(Record, LearnsOfTwoListsOfMessagesOnlyTheCompletion) {
  const std::string answer = R"({"role":"assistant","content":"a"})";
  const std::string begin =
      R"({"system":"s","prompt":[{"role":"user","content":"q"},)" + answer + "]";
  const Record record = parse_record(begin + R"(,"completion":[)" + answer + "]}", "f:1");
  std::string marks;
  for (const Piece& piece : record.pieces) marks += piece.is_target ? '1' : '0';
  EXPECT_EQ(marks, "00000001");
  EXPECT_THAT(record.chat, testing::StartsWith(R"({"messages":[{"role":"system","content":"s"},)"));
  expect_refused_record(begin + R"(,"completion":[]})",
                        {"\"completion\" has no message of the role"});
  expect_refused_record(R"({"prompt":[],"completion":"a"})",
                        {"\"prompt\" is a list where a string"});
}

TEST(Record, KeepsTheOrderOfKeysOfTools) {
  const std::string tools = R"([{"type":"function","function":{"name":"f","about":"b"}}])";
  const Record shared = parse_record(
      R"({"conversations":[{"from":"gpt","value":"hello"}],"tools":)" + tools + "}", "f:1");
  EXPECT_THAT(shared.chat, testing::HasSubstr("\"tools\":" + tools));
}

TEST(Record, DropsNoKeyThatChangesWhatIsLearnt) {
  const Record talk =
      parse_record(R"({"instruction":"c","output":"d","history":[["a","b"]],"system":"s"})", "f:1");
  const std::vector<Piece> wanted = {
      {"system: ", false},    {"s\n", false}, {"user: ", false}, {"a\n", false},
      {"assistant: ", false}, {"b\n", true},  {"user: ", false}, {"c\n", false},
      {"assistant: ", false}, {"d\n", true}};
  EXPECT_EQ(talk.pieces, wanted);
  EXPECT_EQ(parse_record(R"({"instruction":"c","output":"d","history":[]})", "f:1").pieces.size(),
            4U);
  expect_refused_record(R"({"instruction":"c","output":"d","history":["a"]})", {"\"history\""});
  const auto learnt = [](const std::string& line) {
    std::vector<std::string> texts;
    for (const Piece& piece : parse_record(line, "f:1").pieces) {
      if (piece.is_target) texts.push_back(piece.text);
    }
    return texts;
  };
  for (const std::string mark : {R"("weight":0)", R"("train":false)"}) {
    EXPECT_THAT(learnt(R"({"messages":[{"role":"user","content":"a",)" + mark +
                       R"(},{"role":"assistant","content":"b",)" + mark +
                       R"(},{"role":"assistant","content":"c","weight":1,"train":true}]})"),
                testing::ElementsAre("c\n"));
    EXPECT_THAT(learnt(R"({"conversations":[{"from":"human","value":"a",)" + mark +
                       R"(},{"from":"gpt","value":"b",)" + mark +
                       R"(},{"from":"gpt","value":"c","weight":1}]})"),
                testing::ElementsAre("c\n"));
    expect_refused_record(R"({"messages":[{"role":"assistant","content":"b",)" + mark + "}]}",
                          {"nothing to learn", "\"train\": false"});
  }
  expect_refused_record(R"({"messages":[{"role":"assistant","content":"b","train":1}]})",
                        {"message 1", "\"train\" is a number where true or false"});
  expect_refused_record(R"({"messages":[{"role":"user","content":"a","train":true},)"
                        R"({"role":"assistant","content":"b"}]})",
                        {"message 1", "only what the assistant says is learnt"});
}

TEST(Record, TakesASystemTextBesideMessagesForTheFirstOfThem) {
  const std::string user = R"({"content":"hi","role":"user"})";
  const std::string answer = R"({"role":"assistant","content":"a","name":"x"})";
  const std::string messages = R"("messages":[)" + user + "," + answer + "]";
  const Record record = parse_record(R"({"system":"be brief",)" + messages + "}", "f:1");
  ASSERT_EQ(record.pieces.size(), 6U);
  EXPECT_EQ(record.pieces[0], (Piece{"system: ", false}));
  EXPECT_EQ(record.pieces[1], (Piece{"be brief\n", false}));
  EXPECT_EQ(record.chat,
            R"({"messages":[{"role":"system","content":"be brief"},)" + user + "," + answer + "]}");
  for (const std::string none : {"null", R"("")"}) {
    EXPECT_EQ(parse_record(R"({"system":)" + none + "," + messages + "}", "f:1").pieces.size(), 4U);
  }
  expect_refused_record(R"({"system":["be brief"],)" + messages + "}", {"\"system\" is a list"});
  expect_refused_record(R"({"system":"be brief","messages":[7]})", {"message 1: it is not"});
  for (const std::string role : {"system", "developer"}) {
    expect_refused_record(
        R"({"system":"a","messages":[{"role":")" + role + R"(","content":"b"},)" + answer + "]}",
        {"\"" + role + "\"", "leave one out"});
  }
  expect_refused_record(
      R"({"system":"a","conversations":[{"from":"system","value":"b"},{"from":"gpt","value":"c"}]})",
      {"\"system\"", "leave one out"});
}

TEST(Record, RefusesASystemTextBesideAPrompt) {
  const std::string pair = R"("prompt":"a","completion":"b")";
  expect_refused_record(R"({"system":"be brief",)" + pair + "}",
                        {"\"system\" is not used with \"prompt\"", "its text into the prompt"});
  for (const std::string none : {"null", R"("")"}) {
    EXPECT_EQ(parse_record(R"({"system":)" + none + "," + pair + "}", "f:1").pieces.size(), 2U);
  }
}

TEST(Record, JoinsPartsOfContentAndKnowsWhatNeedsATemplate) {
  const Record parts =
      parse_record(R"({"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},)"
                   R"({"type":"text","text":"b"}]}]})",
                   "f:1");
  EXPECT_EQ(parts.pieces[1].text, "ab\n");
  EXPECT_EQ(parts.needs_template, "");
  for (const char* type : {R"("image")", "null", "1", "{}"}) {
    expect_refused_record(
        R"({"messages":[{"role":"user","content":[{"type":)" + std::string(type) + "}]}]}",
        {"message 1", "only text can be trained on"});
  }
  const Record calls = parse_record(
      R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{}]}]})", "f:1");
  EXPECT_EQ(calls.needs_template, "tools");
  expect_store_error(store::StoreError::Kind::bad_input, {"f:1: it has tools", "chat template"},
                     [&] { ByteTokenizer::document(calls); });
}

TEST(Record, LeavesRolesOfItsOwnToAChatTemplate) {
  const Record record = parse_record(
      R"({"messages":[{"role":"critic","content":"no"},{"role":"assistant","content":"a"}]})",
      "f:1");
  EXPECT_EQ(record.needs_template, "the role \"critic\" (message 1)");
  EXPECT_EQ(record.pieces[0].text, "critic: ");
  expect_store_error(store::StoreError::Kind::bad_input,
                     {"f:1: it has the role \"critic\" (message 1), which byte tokens cannot"},
                     [&] { ByteTokenizer::document(record); });
}

TEST(Record, TakesNullAndEmptyListsForNoTools) {
  const std::string chat = R"("messages":[{"role":"assistant","content":"a"}])";
  for (const std::string none : {"{}", R"("")", R"(" ")", R"("[]")", R"("{}")", R"("null")"}) {
    EXPECT_EQ(parse_record(R"({"tools":)" + none + "," + chat + "}", "f:1").needs_template, "")
        << none;
  }
  for (const std::string none : {"null", "[]"}) {
    const Record record =
        parse_record(R"({"tools":)" + none + R"(,"messages":[{"role":"assistant","content":"a",)" +
                         R"("tool_calls":)" + none + "}]}",
                     "f:1");
    EXPECT_EQ(record.needs_template, "") << none;
    expect_refused_record(
        R"({"messages":[{"role":"assistant","content":null,"tool_calls":)" + none + "}]}",
        {"message 1", "\"content\""});
  }
}

TEST(Record, RefusesToolsThatAreNoList) {
  const std::string chat = R"("messages":[{"role":"assistant","content":"a"}])";
  const std::string shared = R"("conversations":[{"from":"gpt","value":"a"}])";
  for (const std::string& record : {chat, shared}) {
    const auto refused = [&record](const std::string& tools, const std::string& why) {
      expect_refused_record(R"({"tools":)" + tools + "," + record + "}", {"\"tools\" is " + why});
    };
    refused(R"("none")", "a text that is not JSON");
    refused(R"("[\"\\ud800\"]")", "a text that is not JSON");
    refused("\"" + std::string(3000, '[') + std::string(3000, ']') + "\"",
            "a text that is not JSON");
    refused("7", "a number");
    refused(R"("true")", "true or false");
  }
  EXPECT_EQ(parse_record(R"({"tools":"[{}]",)" + chat + "}", "f:1").needs_template, "tools");
}

TEST(Record, RefusesPreferencesAndClasses) {
  expect_refused_record(R"({"prompt":"a","chosen":"b","rejected":"c"})",
                        {"are a preference", "set train.preference.loss"});
  expect_refused_record(R"({"text":"a","label":1})", {"classification", "completion"});
  for (const std::string key : {"chosen", "rejected"}) {
    expect_refused_record(R"({"prompt":"a","completion":"b",")" + key + R"(":"c"})",
                          {"are a preference", "leave both keys out"});
  }
  EXPECT_EQ(parse_record(R"({"text":"a","chosen":null,"rejected":null})", "f:1").pieces.size(), 1U);
}

// A rejected answer would be learnt as a good one.
TEST(Record, RefusesAnswersThatALabelRates) {
  for (const std::string answer :
       {R"("prompt":"a","completion":"b")", R"("messages":[{"role":"assistant","content":"b"}])",
        R"("conversations":[{"from":"gpt","value":"b"}])", R"("instruction":"a","output":"b")"}) {
    for (const std::string label : {"true", "false", "1", "0", "0.0"}) {
      expect_refused_record("{" + answer + R"(,"label":)" + label + "}",
                            {"\"label\" is " + label, "preference data", "leave \"label\" out"});
    }
    for (const std::string label : {"\"maths\"", "7", "null"}) {
      EXPECT_NO_THROW(parse_record("{" + answer + R"(,"label":)" + label + "}", "f:1")) << answer;
    }
  }
  EXPECT_NO_THROW(parse_record(R"({"text":"a","label":null})", "f:1"));
  for (const std::string label : {"\"maths\"", "7", "null"}) {
    EXPECT_EQ(
        parse_record(R"({"prompt":"a","completion":"b","label":)" + label + "}", "f:1").pieces,
        (std::vector<Piece>{{"a", false}, {"b", true}}));
  }
}

TEST(Record, ChoosesTargets) {
  const Record record{"f:1", {{"a", false}, {"b", true}, {"c", false}, {"d", true}}, true};
  const auto marks = [&](Targets targets) {
    Record chosen = record;
    choose_targets(chosen, targets);
    std::string text;
    for (const Piece& piece : chosen.pieces) text += piece.is_target ? '1' : '0';
    return text;
  };
  EXPECT_EQ(marks(Targets::assistant), "0101");
  EXPECT_EQ(marks(Targets::all), "1111");
  EXPECT_EQ(marks(Targets::last), "0001");
}

TEST(RecordReader, RefusesOtherFormsByContentAndSaysWhatTheyLookLike) {
  const ScratchDirectory folder;
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"array.jsonl", "[\n  {\"text\": \"a\"}]", "one JSON array"},
      {"array.json", "[{\"text\": \"a\"}]", "one JSON array"},
      {"texts.json", "[\"a text\", \"another\"]", "one JSON array"},
      {"empty.json", "[]", "one JSON array"},
      {"object.json", "{\"a\": 1}", "one JSON object"},
      {"lines.txt", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "JSONL; "},
      {"tokenizer.json", "{\"added_tokens\": [], \"normalizer\": null}", "a tokenizer.json"},
      {"tokens.bin", std::string("\x10\0\0\0\0\0\0\0", 8) + "{\"a\":{}}      ",
       "a safetensors file"},
      {"data.gz", "\x1f\x8b\x08xyz", "gzip"},
      {"table.jsonl", "PAR1....", "Parquet"},
      {"model.bin", "GGUF\x03", "a GGUF model"},
      {"zeros.txt", std::string("ab\0c", 4), "binary"},
      {"latin.txt", "caf\xe9 noir", "another encoding than UTF-8 (byte 4"}};
  for (const auto& [name, bytes, looks] : cases) {
    ScratchDirectory::write(folder / name, bytes);
    expect_store_error(store::StoreError::Kind::bad_input, {name + " looks like", looks},
                       [&] { read_all(folder / name); });
  }
  ScratchDirectory::write(folder / "a list.json", "[{\"text\": \"a\"}, \"it's b\"]");
  std::string command;
  try {
    read_all(folder / "a list.json");
  } catch (const store::StoreError& error) {
    command = error.what();
  }
  // The refusal ends with a command that a shell runs.
  command.erase(0, command.find("python3"));
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_EQ(ScratchDirectory::read(folder / "a list.jsonl"),
            "{\"text\": \"a\"}\n{\"text\": \"it's b\"}\n");
  ScratchDirectory::write(folder / "fine.txt", "[1] a note, {and} more: é 日 😀");
  EXPECT_EQ(read_all(folder / "fine.txt").size(), 1U);
}

TEST(RecordReader, NoteOnATableEndsWithACommandThatWritesRecords) {
  const ScratchDirectory folder;
  EXPECT_EQ(note_on_table(folder / "book.txt"), "");
  for (const auto& [name, between] :
       {std::pair<std::string, std::string>{"a table.csv", ","}, {"t.tsv", "\t"}}) {
    ScratchDirectory::write(folder / name,
                            "prompt" + between + "completion\n\"2, 2\"" + between + "4\n");
    const std::string note = note_on_table(folder / name);
    EXPECT_TRUE(note.starts_with("it is read as one text")) << note;
    const std::string command = note.substr(note.find("python3"));
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const std::vector<Record> records = read_all((folder / name).replace_extension(".jsonl"));
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].pieces, (std::vector<Piece>{{"2, 2", false}, {"4", true}}));
    // It overwrites nothing.
    EXPECT_NE(note_on_table(folder / name).find("-new"), std::string::npos);
  }
}

TEST(ByteTokenizer, DecodesWhatItEncodes) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  const std::vector<std::int32_t> tokens = ByteTokenizer::encode(text);
  EXPECT_EQ(tokens.back(), 255);
  EXPECT_EQ(ByteTokenizer::decode(tokens), text);
  EXPECT_EQ(ByteTokenizer::decode(std::vector<std::int32_t>{104, 105, ByteTokenizer::kEnd}), "hi");
}

TEST(ByteTokenizer, EndsEveryRecordWithATarget) {
  const Record record{"f:3", {{"ab", false}, {"c", true}}, true};
  const Document document = ByteTokenizer::document(record);
  EXPECT_THAT(document.tokens, testing::ElementsAre('a', 'b', 'c', 256));
  EXPECT_THAT(document.is_target, testing::ElementsAre(0, 0, 1, 1));
  EXPECT_TRUE(document.whole);
  EXPECT_EQ(document.origin, "f:3");
}

}  // namespace
}  // namespace strait::data
