# Completion of fish for trireme, which prints the candidates itself.
function __trireme_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    trireme help --complete $words[2..-1] "$current"
end
complete -c trireme -a '(__trireme_complete)'
