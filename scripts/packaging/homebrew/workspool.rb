# A formula that builds from source. `scripts/release` fills in address, checksum and version.
class Workspool < Formula
  desc "Spool of coding tasks, and a runner that works them off in git worktrees"
  homepage "@HOMEPAGE@"
  url "@URL@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "rust" => :build
  depends_on "git"

  def install
    system "cargo", "install", *std_cargo_args
    generate_completions_from_executable(bin/"workspool", "completions")
    system bin/"workspool", "man", "--write", man1
    doc.install "docs", "queue-schema", "CHANGELOG.md"
  end

  # There is no `service` block: one made by Homebrew would end running tasks together with the runner.
  def caveats
    <<~EOS
      Start it in the background with
        workspool service install
      and see whether all is well with
        workspool doctor
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/workspool --version")
    # The whole job, on a throw-away repository.
    system bin/"workspool", "demo"
  end
end
