#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/data/chat_record.h"
#include "framework/data/tokenizer.h"
#include "framework/store/store_error.h"
#include "launcher/compute/generation.h"
#include "tests/refusal_of.h"

namespace strait::compute {
namespace {

std::string encoded(const std::string& chat) {
  const data::Record record =
      data::prompt_record(nlohmann::json::parse(chat), chat, "prompts.jsonl:2");
  return data::ByteTokenizer::decode(make_text_coder("bytes")->encode_chat(record));
}

TEST(TextCoder, RendersAPromptOfBytesAsTheRecordBeforeItsAnswer) {
  const std::string chat =
      R"({"messages":[{"role":"system","content":"be brief"},{"role":"user","content":)";
  const std::string wanted = "system: be brief\nuser: how warm?\nassistant: ";
  EXPECT_EQ(encoded(chat + R"("how warm?"}],"text":"is no part of it"})"), wanted);
  EXPECT_EQ(encoded(chat + R"([{"type":"text","text":"how "},{"type":"text","text":"warm?"}]}]})"),
            wanted);
}

TEST(TextCoder, RefusesToolsThatBytesCannotRender) {
  const std::string refusal = refusal_of<store::StoreError>(
      [] { encoded(R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})"); });
  EXPECT_TRUE(refusal.starts_with("prompts.jsonl:2: it has tools")) << refusal;
}

}  // namespace
}  // namespace strait::compute
