#include "launcher/app/text_coder.h"

#include <gtest/gtest.h>

#include "framework/store/byte_tokenizer.h"
#include "framework/store/store_error.h"

namespace strait::app {
namespace {

std::string encoded(const std::string& chat) {
  return store::ByteTokenizer::decode(make_text_coder("bytes")->encode_chat(chat));
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
  EXPECT_THROW(encoded(R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})"),
               store::StoreError);
}

}  // namespace
}  // namespace strait::app
