#include "launcher/recipe/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/errors.h"
#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::recipe {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LinkTable two_hosts() {
  LinkTable table;
  table.hosts = {{"alice@10.0.0.1", 3.14159265e10, 2.125, 4, 1.7e10}, {"bob \"b\"", 1e9, 0, 1, 0}};
  table.hosts[0].gpu_memory = {std::int64_t{80} << 30, std::int64_t{24} << 30};
  table.hosts[1].gpu_memory.emplace();  // it has none
  table.links = {{"alice@10.0.0.1", "bob \"b\"", 96'123'456.789, 99e6, 0.030123},
                 {"bob \"b\"", "alice@10.0.0.1", 1e7, 0, 0}};
  return table;
}

std::string refusal(const std::function<LinkTable()>& read) {
  return base::user_error(base::ExitCode::bad_input, [&] { read(); });
}

std::string refused_toml(const std::string& text) {
  return refusal([&] { return parse_links_toml(text, "l.toml"); });
}

TEST(Links, ReadsBackExactly) {
  const std::string text = write_links(two_hosts(), "Measured once.");
  EXPECT_EQ(parse_links_toml(text, "l.toml"), two_hosts()) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("# Measured once."), HasSubstr("# 96.1 Mbit/s, one connection"),
                          HasSubstr("# 30.12 ms, one way"), HasSubstr("# 31.4 Gflop/s")));
}

TEST(Links, OptionalKeysCanBeLeftOut) {
  const LinkTable table = parse_links_toml(R"(
      [[hosts]]
      name = "a"
      [[links]]   # whole numbers will do
      from = "a"
      to = "b"
      bits_per_second = 100_000_000
      seconds = 0
  )",
                                           "l.toml");
  ASSERT_NE(table.host("a"), nullptr);
  EXPECT_EQ(table.host("a")->flops_per_second, 0);
  EXPECT_EQ(table.host("a")->gpu_memory, std::nullopt) << "not known";
  ASSERT_NE(table.link("a", "b"), nullptr);
  EXPECT_EQ(table.link("a", "b")->bits_per_second, 1e8);
  EXPECT_EQ(table.link("b", "a"), table.link("a", "b")) << "said of one direction only";
  EXPECT_EQ(table.link("a", "c"), nullptr);
  EXPECT_EQ(table.host("b"), nullptr);
}

TEST(Links, PrefersEntryOfSameDirection) {
  const LinkTable table = two_hosts();
  EXPECT_EQ(table.link("bob \"b\"", "alice@10.0.0.1")->bits_per_second, 1e7);
}

// A plan of a thousand hosts is copied for every layout.
TEST(Links, CopiesShareTheirList) {
  LinkTable table = two_hosts();
  const LinkTable copy = table;
  EXPECT_EQ(&copy.links.list(), &table.links.list());
  table.links.put({{"bob \"b\"", "alice@10.0.0.1", 2e7, 0, 0}, {"c", "d", 1e6, 0, 0}});
  EXPECT_EQ(table.links.size(), 3U);
  EXPECT_EQ(table.link("bob \"b\"", "alice@10.0.0.1")->bits_per_second, 2e7);
  EXPECT_EQ(table.link("d", "c")->bits_per_second, 1e6);
  EXPECT_EQ(copy, two_hosts());
}

TEST(Links, ReadsCsv) {
  const LinkTable table = parse_links_csv(
      "from,to,mbit_per_s,ms\r\n# by hand\na, b, 100, 30\n\"b\",\"a\",12.5,0\n", "l.csv");
  ASSERT_EQ(table.links.size(), 2U);
  EXPECT_EQ(table.links[0], (MeasuredLink{"a", "b", 1e8, 0, 0.03}));
  EXPECT_EQ(table.links[1], (MeasuredLink{"b", "a", 12.5e6, 0, 0}));
}

TEST(Links, SelectsFormatByFileName) {
  const ScratchDirectory scratch;
  ScratchDirectory::write(scratch / "l.csv", "from,to,mbit_per_s,ms\na,b,1,2\n");
  ScratchDirectory::write(scratch / "l.toml", write_links(two_hosts(), "x"));
  EXPECT_EQ(read_links(scratch / "l.csv").links.size(), 1U);
  EXPECT_EQ(read_links(scratch / "l.toml"), two_hosts());
  EXPECT_THAT(refusal([&] { return read_links(scratch / "none.toml"); }),
              AllOf(HasSubstr("cannot open"), HasSubstr("none.toml"), HasSubstr("strait probe")));
}

TEST(Links, DoesNotTakeADirectoryForAnEmptyTable) {
  const ScratchDirectory scratch;
  EXPECT_THAT(refusal([&] { return read_links(scratch.path()); }), HasSubstr("not a regular file"));
}

TEST(Links, NamesLineOfMistake) {
  EXPECT_THAT(refused_toml("[[links]]\nfrom = \"a\"\nto = \"b\"\nseconds = 1\n"),
              AllOf(HasSubstr("l.toml:1:"), HasSubstr("no bits_per_second")));
  EXPECT_THAT(
      refused_toml("[[links]]\nfrom = \"a\"\nto = \"b\"\nseconds = -1\nbits_per_second = 1\n"),
      AllOf(HasSubstr("l.toml:4:"), HasSubstr("seconds must be a number")));
  EXPECT_THAT(
      refused_toml("[[hosts]]\nname = \"a\"\nflops = 1\n"),
      AllOf(HasSubstr("l.toml:3:"), HasSubstr("no key flops"), HasSubstr("flops_per_second")));
  for (const char* wrong : {"1", "[0]", "[1, 2.5]", "[\"80 GB\"]"}) {
    EXPECT_THAT(refused_toml(fmt::format("[[hosts]]\nname = \"a\"\ngpu_memory = {}\n", wrong)),
                AllOf(HasSubstr("l.toml:3:"), HasSubstr("gpu_memory must be a list of bytes")));
  }
  EXPECT_THAT(refused_toml("[[hosts]]\nname = 3\n"), HasSubstr("a host's name"));
  EXPECT_THAT(refused_toml("speeds = 1\n"), HasSubstr("it has hosts and links"));
  EXPECT_THAT(refused_toml("links = 1\n"), HasSubstr("[[links]]"));
  EXPECT_THAT(refused_toml("links = [1]\n"), HasSubstr("[[links]]"));
  EXPECT_THAT(refused_toml("[[links\n"), AllOf(HasSubstr("l.toml:1:"), HasSubstr("not TOML")));
  const auto refused_csv = [](const std::string& text) {
    return refusal([&] { return parse_links_csv(text, "l.csv"); });
  };
  EXPECT_THAT(refused_csv("a,b,1,2\n"),
              AllOf(HasSubstr("l.csv:1"), HasSubstr("from,to,mbit_per_s,ms")));
  EXPECT_THAT(refused_csv("from,to,mbit_per_s,ms\na,b,fast,2\n"),
              AllOf(HasSubstr("l.csv:2"), HasSubstr("mbit_per_s is \"fast\"")));
  EXPECT_THAT(refused_csv("from,to,mbit_per_s,ms\na,b,1\n"), HasSubstr("four cells"));
  EXPECT_THAT(refused_csv("from,to,mbit_per_s,ms\na,\x8a,1,2\n"),
              HasSubstr("l.csv:2: this line is not UTF-8"));
  EXPECT_THAT(refused_csv("from,to,mbit_per_s,ms\na,b,nan,1\n"), HasSubstr("must be a number"));
}

}  // namespace
}  // namespace strait::recipe
